// SPDX-License-Identifier: Apache-2.0

// Package say puts into words and figures what a node is: its status with the four axes,
// what is wrong with it, the trace of a boot and the report to its fleet.
//
// It decides nothing and asks nobody. Package look looks the node up as a [View], and
// everything is said of that. What else is on a machine, such as files that somebody
// changed by hand, is read below a directory that the caller names.
package say

import (
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/spec"
)

// View is a node at one moment.
type View struct {
	Now    time.Time     // of the wall clock
	Up     time.Duration // since this kernel started
	BootID string        // of this kernel
	RootID string        // of this root
	Image  string        // IMAGE_VERSION of this root
	Agent  string        // its version

	Recipient string // of secrets, "" where there is none
	Sealed    bool   // its key is, to the TPM

	Boot  *state.Boot  // of this root, and what was noted since
	State *state.State // what is remembered over boots

	// What runs.
	Overlay      *spec.Overlay
	LeftOut      []string // paths of its keys of a later release, which do not act
	Generation   state.Generation
	Expires      time.Time // of the overlay's signature
	LayerVersion string
	Keys         *spec.KeysKnown // nil where there is no chain

	// What the last look at the items has found.
	Items []spec.ItemStatus
	Drift []spec.Drift
	Hints map[string][]string // what tells the service of changes, by kind

	Rejected   string            // why what is staged is not tried again, "" where it is
	Judged     *Judged           // nil where no change has to pass its gates
	Unwell     map[string]string // why watched checks do not hold, by name
	Pause      *spec.Hold        // nil where the node is not paused
	Operations []spec.OperationStatus
	Services   []spec.ServiceStatus
	Rescue     *spec.RescueStatus // nil where no rescue key counts and no operator was let in

	Profiles []spec.Drift // of AppArmor, that are not as the layer says
	Cannot   []spec.Drift // what needs a layer, see [Host.Cannot]
	Damage   error        // what the journal has lost
	Unsaved  error        // why what was decided is in memory only, nil where it is on the disk
	Foreign  []string     // see [Foreign]

	Staging      bool        // a layer is being fetched
	StagingSince time.Time   // zero where that is not known
	Fetched      *spec.Bytes // of the layer that waits; nil where this service fetched no part of it
	Move         string      // how the node gets to what waits, and why that way; "" where it runs already
}

// Judged is a change that has to pass its gates.
type Judged struct {
	Record gate.Record
	Checks []spec.HealthCheck
}

// Waits returns the overlay that waits for a reboot, "" where none does.
func (v *View) Waits() (overlay string) {
	if g := v.staged(); g != nil {
		overlay = g.Overlay
	}
	h, current := v.State.HoldAt(v.Now.Unix()), v.State.Current
	if v.boots() && h != nil && h.Kind != spec.HoldFreeze && current != nil && current.Overlay != v.Generation.Overlay {
		overlay = current.Overlay
	}
	return overlay
}

// staged returns the generation that the next boot is to try, nil where there is none.
func (v *View) staged() *state.Generation {
	if g := v.State.Staged; v.boots() && g != nil && !g.Pair(v.Generation) && v.Rejected == "" {
		return g
	}
	return nil
}

// boots reports whether a boot of this node can bring what is not in effect: on a host
// that caisson did not boot nothing waits for one.
func (v *View) boots() bool { return v.Boot.Mode != spec.ModeAttached }
