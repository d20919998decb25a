// SPDX-License-Identifier: Apache-2.0

// Package trust decides whether an overlay, a fleet:current or a layer may act on
// a machine. It is the gate of the second rule: nothing unsigned acts.
//
// The order of a caller, each step only after the one before:
//
//  1. [Overlay] finds a candidate by the names of the machine. Nothing in a
//     candidate counts yet.
//  2. [Accept] decides. It is pure: the same candidate, bootstrap, machine,
//     floor, clock and knowledge give the same answer, and it writes nothing.
//  3. The caller persists Accepted.Floor, the date where it is credible, and the
//     candidate itself ([Candidate.Save]), fsynced, BEFORE anything of the overlay
//     acts, be it a fetched layer that is stacked or a single sysctl. Else a power
//     cut between acting and remembering lets an old overlay in again.
//  4. [Layer] reads what the overlay names by digest.
//
// A cached candidate ([Load]) goes through Accept again at every boot: a disk is
// outside, too. fleet:current goes the same way with [Current] and [AcceptFleet]
// before the overlay; what it says is part of [Known].
//
// The checks are named lists, see [Rules]; docs/refusals.md names the refusal
// codes. Errors with a code are final for these bytes; oci.ErrNotFound means that
// nothing is published under the name; anything else is a failure of the way,
// worth another try.
//
// It imports spec, oci, oci/sign and the standard library. The agent's stages and
// the publisher, which asks before it pushes, import it.
package trust
