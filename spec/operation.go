// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"time"
)

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

// Ended returns when a run of the operation came to its end last, and whether it failed;
// zero where none has, or it runs again.
func (s OperationStatus) Ended() (at time.Time, failed bool) {
	switch {
	case s.State == OperationDone, s.State == OperationScheduled:
		return s.Since, false
	case s.State == OperationFailed, s.State == OperationWaiting && s.For == ForRetry:
		return s.Since, true
	}
	return time.Time{}, false
}

// LayerSwapName is the name and the type of the operation that [LayerSwap] is on a node. No
// overlay lists it, and the names of those that one does have a slash.
const LayerSwapName = "swap"

// What an operation waits for. docs/axes.md has these words, with what stands beside them.
const (
	ForStaging      = "staging"      // the images of what waits, on the state disk or in memory
	ForClock        = "clock"        // a clock that follows a time server
	ForWindow       = "window"       // an open window
	ForTurn         = "turn"         // this node's part of the window, the end of another operation, or of a change on trial
	ForPrecondition = "precondition" // a precondition of the site, its `when`
	ForSlot         = "slot"         // a slot of its group, to take or to give back
	ForGates        = "gates"        // the health checks: of what runs, or after the operation
	ForRetry        = "retry"        // the next attempt after a failure
	ForSchedule     = "schedule"     // a calendar that is published again
)

// KindSlotRequest is the kind of [SlotRequest].
const KindSlotRequest = "SlotRequest"

// SlotRequest is signed by a node, as it signs a report, to prove that it asks for a
// slot or gives it back: FleetLock itself knows no proof of who asks.
type SlotRequest struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // KindSlotRequest
	Fleet      string    `json:"fleet"`
	Node       string    `json:"node"`
	Key        string    `json:"key"` // id of the key that signs this
	Group      string    `json:"group"`
	Act        string    `json:"act"`    // pre-reboot or steady-state
	BootID     string    `json:"bootId"` // that of the node's last report
	Time       time.Time `json:"time"`   // by the node's clock: each request's is later than that of the one before
}

// DecodeSlotRequest reads a request as any release may have signed it. What it asks for is in
// the keys of this release: it is compared with what came beside it.
func DecodeSlotRequest(data []byte) (SlotRequest, error) {
	var r SlotRequest
	if _, err := DecodeKnown(data, &r); err != nil {
		return r, err
	}
	if r.APIVersion != APIVersion || r.Kind != KindSlotRequest {
		return r, fmt.Errorf("it is a %.40q of %.40q, not a %s", r.Kind, r.APIVersion, KindSlotRequest)
	}
	return r, nil
}
