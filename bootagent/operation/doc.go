// SPDX-License-Identifier: Apache-2.0

// Package operation runs what a node does once or by a clock.
//
// A ledger holds one record an operation, by its id: what is done is not done again,
// also not under a new calendar. A record says "running" before anything starts; one
// of an earlier boot was interrupted, which is a failure unless the operation's check
// says that it is done. Nothing waits here: [Engine.Look] notes what has ended, starts
// what is due, and returns; it is called again and again. Of one operation there are
// never two runs at once.
//
// What disturbs takes its turn first: preconditions, its own check, a slot, the
// preconditions again, the drain; its window is asked about before each step. After
// the act come the gates, the end of the drain, a while, and the end of the slot. What
// was taken is on disk before it is asked for, so that it is given back after a crash
// and after a reboot, and nothing is given back that another holds. Package operate
// gives it its clocks, its runner and its turns.
package operation
