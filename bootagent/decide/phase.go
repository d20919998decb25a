// SPDX-License-Identifier: Apache-2.0

// In which phase a node is is one value, read in one place from what the node has written down.
//
// A [Run] is made by [ReadRun] alone, from the state and the boot record, and nothing
// else in the agent looks at the fields that it is made of to find out what the node is
// at. Of two phases that the files allow the one counts that has to end first: what is
// on trial before what is judged, and that before what only waits.

package decide

import (
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
)

// Phase names the phase that a node is in.
type Phase string

// Phases.
const (
	Nothing    Phase = "nothing"    // it has accepted nothing that this root could run
	Idle       Phase = "idle"       // what runs has proved itself, and nothing else is offered
	Changing   Phase = "changing"   // a change on trial is made, tested or undone
	Confirming Phase = "confirming" // a change is in effect until somebody confirms it, or its time is over
	Prepared   Phase = "prepared"   // this root came up with one, of which something was set before services started, on trial
	Entering   Phase = "entering"   // this root came up with a generation that was never in effect
	Soaking    Phase = "soaking"    // what is in effect has to pass its checks
	Stuck      Phase = "stuck"      // it did not pass them, and there is nothing to go back to
	Partial    Phase = "partial"    // what runs is without what cut the node off
	Waiting    Phase = "waiting"    // another generation waits for a boot, a pause or somebody
)

// Run is the phase and what it is about.
type Run struct {
	Phase Phase
	To    state.Generation // what is tried, judged or waits; of Idle what runs
	Why   string           // of Stuck and Partial: what went wrong

	// Of Changing, Confirming and Prepared.
	By     state.Confirm
	Boot   string // the kernel's boot in which it began
	Within int64  // seconds that there are to confirm it
	Ends   int64  // of Confirming: seconds of uptime
	Early  bool   // it was begun before services started, and no agent came after
}

// Left is how much of its time a change has left that is to be confirmed.
func (r Run) Left(up time.Duration) time.Duration {
	return time.Duration(r.Ends)*time.Second - up
}

// RunRoot describes the root that runs.
type RunRoot struct {
	Attached bool              // caisson did not boot this host
	Begun    bool              // it was brought to what its overlay says at least once
	Boot     string            // id of the kernel's boot
	By       state.Generation  // by which it goes
	Runs     *state.Generation // nil where nothing was accepted
	Judged   bool              // it has to pass its checks
	Takes    *state.Generation // what the next boot would try
}

// ReadRun returns the phase of a node.
func ReadRun(s *state.State, live *record.Live, root RunRoot) Run {
	if t := s.Trial; t.Pending() {
		r := Run{Phase: Changing, To: t.Generation, By: t.Confirm, Boot: t.Boot, Within: t.Within, Ends: t.Ends, Early: t.Early}
		switch {
		case t.Boot != root.Boot:
		case t.Ends != 0:
			r.Phase = Confirming
		case t.Early && !root.Begun && root.Runs != nil && root.Runs.Pair(t.Generation):
			r.Phase = Prepared
		}
		return r
	}
	if root.Runs == nil {
		return Run{Phase: Nothing}
	}
	r := Run{Phase: Idle, To: *root.Runs}
	switch w := live.Without; {
	case !root.Attached && !root.Begun && root.Runs.Pair(root.By) && s.Unproven(*root.Runs):
		r.Phase = Entering
	case root.Judged && live.Stuck != "":
		r.Phase, r.Why = Stuck, live.Stuck
	case root.Judged:
		r.Phase = Soaking
	case w != nil && w.Overlay == root.Runs.Overlay:
		r.Phase, r.Why = Partial, w.Reason
	case root.Takes != nil && !root.Takes.Pair(*root.Runs):
		r.Phase, r.To = Waiting, *root.Takes
	}
	return r
}
