// SPDX-License-Identifier: Apache-2.0

package spec

import "time"

// OperationState is where an operation stands on a node.
type OperationState string

// States of operations.
const (
	OperationScheduled OperationState = "scheduled" // its next time is known
	OperationWaiting   OperationState = "waiting"   // for a window, a clock or the next attempt
	OperationRunning   OperationState = "running"
	OperationDone      OperationState = "done"
	OperationHolding   OperationState = "holding" // of realtime: what is changed is set again
	OperationFailed    OperationState = "failed"
	OperationCannot    OperationState = "cannot" // as it stands it never runs on this node
)

// OperationStatus is one operation as a node sees it.
type OperationStatus struct {
	Name     string         `json:"name"`
	Type     string         `json:"type"`
	State    OperationState `json:"state"`
	Detail   string         `json:"detail,omitempty"`   // for what it waits, why it failed
	Since    time.Time      `json:"since,omitzero"`     // of the last change
	Next     time.Time      `json:"next,omitzero"`      // when it runs next, where that is known
	Attempts int64          `json:"attempts,omitempty"` // how often it was tried since it was due
	Missed   int64          `json:"missed,omitempty"`   // times of Cron at which it did not run
	Log      string         `json:"log,omitempty"`      // file with the output of its last run
	For      string         `json:"for,omitempty"`      // of waiting: for what, one of the For constants
	Slot     string         `json:"slot,omitempty"`     // group of which it holds a slot
}

// LayerSwapName is the name and the type of the operation that [LayerSwap] is on a node. No
// overlay lists it, and the names of those that one does have a slash.
const LayerSwapName = "swap"

// What an operation waits for.
const (
	ForStaging      = "staging"      // that the layer is on the state disk
	ForClock        = "clock"        // that follows a time server
	ForWindow       = "window"       // that is open
	ForTurn         = "turn"         // this node's part of the window, or the end of another operation
	ForPrecondition = "precondition" // of the site, its when
	ForSlot         = "slot"         // of its group, to take or to give back
	ForGates        = "gates"        // that the node is well after it
	ForRetry        = "retry"        // the next attempt after a failure
	ForSchedule     = "schedule"     // that is published again
)
