// SPDX-License-Identifier: Apache-2.0

// Package trust brings a node its overlay and its layer, and decides whether
// the overlay may act. It is the gate of the second rule: nothing unsigned acts.
//
// The order of a caller, each step only after the one before:
//
//  1. [Overlay] finds a candidate by the names of the machine. Nothing in a
//     candidate is believed.
//  2. [Accept] decides. It is pure: the same candidate, bootstrap, machine,
//     floor, clock and knowledge give the same answer, and it writes nothing.
//  3. The caller persists Accepted.Floor and Accepted.IssuedAt and the candidate
//     itself ([Candidate.Save]), fsynced, BEFORE anything of the overlay acts,
//     be it a fetched layer that is stacked or a single sysctl. Else a power cut
//     between acting and remembering lets an old overlay in again.
//  4. [Layer] and [Blob] bring what the overlay names by digest.
//
// A cached candidate ([Load]) goes through Accept again at every boot, with the
// same floor: a disk is outside, too. fleet:current goes the same way with
// [Current] and [AcceptFleet] before the overlay; its limits are part of
// [Knowledge], and the greatest one that was accepted is persisted as well.
//
// Errors with a refusal code are final for these bytes and named in
// docs/security.md; oci.ErrNotFound means nothing is published under the name;
// anything else is a failure of the way, worth another try.
//
// It imports spec, oci, oci/sign and the standard library. Only the agent's
// stages import it.
package trust
