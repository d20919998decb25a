// SPDX-License-Identifier: Apache-2.0

// Package attack is the attack corpus: what an enemy of a node may try, as data.
//
// attacks.yaml holds one row an attack, each with the refusal code that must
// come out and the check that must say it. A row changes something in a world in
// which all is well: author edits happen before hashing and signing (somebody
// with a key, careless or stolen), served edits after (somebody between or with
// push rights), node says what the machine is and remembers, serve how the
// registry misbehaves. Rows without a code are controls: the node must go on.
//
// Other classes are files of their own, read by LoadClass into the type of what
// is attacked. localuser.yaml is what users of a node try on the agent, with
// scripts that really run as a user; see [LocalUser].
//
// places.yaml is what one of several places answers; see [Rubbish].
//
// service.yaml is what is tried on the fleet's service; see [Service]. rehearsal.yaml is what is
// offered as a statement of a rehearsal; see [Rehearsal]. rescue.yaml is how
// somebody tries to be let into a node; see [Rescue].
//
// The package forges its materials with the standard library alone and shares
// no code with what is tested. Each package of the trust core runs the rows and,
// in a meta-test, switches each of its checks off in turn: the rows that name the
// check must then fail, and every check must have rows. Only tests import it.
package attack
