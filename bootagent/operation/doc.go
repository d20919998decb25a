// SPDX-License-Identifier: Apache-2.0

// Package operation runs what a node does once or by a clock.
//
// A ledger holds one record an operation, by its id: what is done is not done again,
// also not under a new calendar. A record says "running" before anything starts; one
// of an earlier boot was interrupted, which is a failure unless the operation's check
// says that it is done. Nothing waits here: [Engine.Look] notes what has ended, starts
// what is due, and returns; it is called again and again. Of one operation there are
// never two runs at once. Package node is the only caller.
package operation
