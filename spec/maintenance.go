// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"slices"
	"time"
)

// Maintenance holds the operations and windows of a node. Calendars, sets of nodes and templates
// were resolved when it was published: the node compares a clock with numbers.
type Maintenance struct {
	Horizon    time.Time         `json:"horizon"` // UTC; nothing is known of windows and runs from then on
	Windows    map[string]Window `json:"windows,omitempty"`
	Slots      map[string]Slot   `json:"slots,omitempty"` // by group
	Operations []Operation       `json:"operations"`      // sorted by name
	Realtime   []Realtime        `json:"realtime,omitempty"`
}

// Window is when something may happen.
type Window struct {
	Intervals  []Interval `json:"intervals"`            // in order; they neither overlap nor touch
	StartGuard int64      `json:"startGuard,omitempty"` // seconds before the end of an interval in which nothing starts
	OnClose    string     `json:"onClose,omitempty"`    // finish (when empty) or stop: what happens to what still runs
}

// Interval is a span of UTC from From up to, and without, To.
type Interval struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Types of operations.
const (
	OneShot      = "oneShot"
	Cron         = "cron"
	RealtimeType = "realtime"
)

// Realtime is some of a node's items that are managed together: in windows they are
// set, and set again. Outside of them a new value waits, and drift is reported.
type Realtime struct {
	Name    string    `json:"name"`              // maintenance/operation
	Windows []string  `json:"windows,omitempty"` // any of them; at any time when empty
	Keys    []ItemKey `json:"keys"`              // of no other Realtime, sorted
	Budget  *Budget   `json:"budget,omitempty"`  // of each of its settings
	From    string    `json:"from,omitempty"`    // NAME@VERSION@DIGEST of its template
}

// ItemKey is one setting, as Drift names it.
type ItemKey struct {
	Item string `json:"item"`
	Key  string `json:"key"`
}

// RealtimeOf returns the operation that manages a setting, nil for none.
func (m *Maintenance) RealtimeOf(item, key string) *Realtime {
	if m == nil {
		return nil
	}
	for i, r := range m.Realtime {
		if slices.Contains(r.Keys, ItemKey{item, key}) {
			return &m.Realtime[i]
		}
	}
	return nil
}

// Operation is something that a node does once, or at given times.
type Operation struct {
	ID         string      `json:"id"`                   // digest of name, type, generation and action: what was done is known by it
	Name       string      `json:"name"`                 // maintenance/operation
	Type       string      `json:"type"`                 // OneShot or Cron
	Windows    []string    `json:"windows,omitempty"`    // it starts in any of them; at any time when empty
	Disruptive bool        `json:"disruptive,omitempty"` // without a memory it must not run unchecked
	Runs       []time.Time `json:"runs,omitempty"`       // of Cron: UTC, in order
	Jitter     int64       `json:"jitter,omitempty"`     // of Cron, seconds: each node adds its own part of it
	CatchUp    bool        `json:"catchUp,omitempty"`    // of Cron: what was missed runs once, later
	Retries    int64       `json:"retries,omitempty"`    // after a failure
	Backoff    int64       `json:"backoff,omitempty"`    // seconds before the first retry; doubled for each later one
	Generation int64       `json:"generation,omitempty"` // of OneShot: raised to run it again
	From       string      `json:"from,omitempty"`       // NAME@VERSION@DIGEST of its template
	Order      *Order      `json:"order,omitempty"`      // of what disturbs
	Action
}

// Action describes the act of an operation.
type Action struct {
	Exec    Command  `json:"exec"`
	Check   *Command `json:"check,omitempty"`   // exit code 0: it is done already
	Reboots bool     `json:"reboots,omitempty"` // it is over when the machine has booted again
}

// Order holds the steps around an act that disturbs: preconditions, a slot,
// the preconditions again, the drain, the act, the gates, the end of the drain, a
// while in which nobody else of the group starts, and the end of the slot.
type Order struct {
	When   []Condition `json:"when,omitempty"`   // all of them
	Slot   string      `json:"slot,omitempty"`   // group of Maintenance.Slots
	Spread int64       `json:"spread,omitempty"` // seconds: each node starts later in its window by its own part of them
	Drain  *Drain      `json:"drain,omitempty"`
	Soak   int64       `json:"soak,omitempty"` // seconds
}

// LayerSwap is when a node starts over by itself into what waits for that: another
// layer, and what else of its overlay takes a boot.
type LayerSwap struct {
	Windows []string `json:"windows,omitempty"` // of Maintenance, any of them; at any time when empty
	Order
}

// Condition is something that must be so before anything is disturbed. One field is
// set.
type Condition struct {
	File    string   `json:"file,omitempty" doc:"file that must exist"`
	Absent  string   `json:"absent,omitempty" doc:"file that must not exist"`
	Unit    string   `json:"unit,omitempty" doc:"unit that must be active"`
	Command *Command `json:"command,omitempty"`
}

// Drain takes work off a node and lets it come back.
type Drain struct {
	Check Command `json:"check"` // exit code 0: it is drained already, by another, who will undo it
	Exec  Command `json:"exec"`
	Undo  Command `json:"undo"`
}

// Slot is how many nodes of a group may be disturbed at once, and who counts them:
// one of FleetLock and Directory is set.
type Slot struct {
	Max int64 `json:"max" site:",required" doc:"how many nodes of a group may be disturbed at once"`
	// URL of a server of that protocol, without /v1
	FleetLock string `json:"fleetlock,omitempty" doc:"URL of a server of the FleetLock protocol, such as airlock, which counts the slots"`
	Directory string `json:"directory,omitempty" doc:"directory that the nodes share, whose files count the slots"`
}

// Command is a program with its arguments.
type Command struct {
	// absolute path of a program, and its arguments; no shell runs it
	Argv []string `json:"argv" site:",required,block" as:"[/usr/sbin/fstrim, -A]; a shell is [/bin/sh, -c, \"…\"]" doc:"full path, arguments"`
	// seconds
	Timeout int64 `json:"timeout" site:",required,duration" as:"1h" doc:"time after which all that the command started is ended; at most 1d"`
}

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
