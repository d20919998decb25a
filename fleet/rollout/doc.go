// SPDX-License-Identifier: Apache-2.0

// Package rollout moves a fleet in waves: a plan is signed once, each wave is a publish
// of its nodes, and what the nodes report decides whether the next one begins.
//
// [Start] makes a plan of a compiled site. [Run] goes on from wherever the fleet's
// index says that the rollout is: begin a wave, wait until it is well for the time of
// soaking, begin the next; or halt, and give nodes back what they had. [Next] is the
// whole decision, without a clock, a registry or a network.
//
// Every step is made while no other publisher changes the fleet, and its result is in
// the signed index. So a run may be killed anywhere and go on elsewhere, two runs do
// each step once, and a rollout that one of them halted is halted for both. Nodes obey
// signatures alone: a report, forged or true, can only hold a wave back or let the next
// signed step come earlier.
package rollout
