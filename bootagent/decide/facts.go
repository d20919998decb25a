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

	"github.com/caisson-os/caisson/bootagent/record/state"
)

// Event names an event that leads to a decision.
type Event string

// Events. Of the service's rhythms a look is Begin and then Look, a question to the
// registry is Begin and then Answer; the others follow from acts.
const (
	Begin   Event = "begin"   // anything is to be done: what was left unfinished comes first
	Look    Event = "look"    // the node looks at what runs
	Answer  Event = "answer"  // the registry was asked
	Try     Event = "try"     // a change is to be made
	Made    Event = "made"    // it was made, or failed
	Doubted Event = "doubted" // the way to the registry was tried by what ran before what is doubted
	Probed  Event = "probed"  // the way to the registry was tried after a change
	Undo    Event = "undo"    // a change on trial is to be undone
	Effect  Event = "effect"  // a generation is in effect
	Judged  Event = "judged"  // the checks of what is in effect were looked at
	Swap    Event = "swap"    // another root waits, and its policy is asked when to start over into it
	Boot    Event = "boot"    // the loader has asked the registry, or a medium
	Early   Event = "early"   // this root comes up, and no service has started
	Fetched Event = "fetched" // the loader has fetched the layer of what it was to enter, or could not
	Sought  Event = "sought"  // the loader has looked for what ran well before
)

// Facts hold everything that a decision depends on: values that were read before.
type Facts struct {
	Event Event

	// The machine.
	Attached  bool          // caisson did not boot this host
	Begun     bool          // this root was brought to what its overlay says at least once
	Remembers bool          // what is noted now is there after a boot
	Boot      string        // id of the kernel's boot
	Up        time.Duration // since it began
	Now       int64         // seconds since 1970
	Ended     bool          // this process is to end
	Retry     bool          // an operator asks for what failed, too

	// What is written down.
	Run     Run
	Best    *state.Generation // the newest that proved itself
	Current *state.Generation // the newest that proved itself on its own layer
	Staged  *state.Generation // accepted, and not proven
	Ahead   *state.Generation // what proved itself on a layer that is not its own
	Runs    *state.Generation // in effect on this root
	Root    state.Generation  // by which this root goes
	Undone  *state.Generation // what was on trial and undone, and is not tried again
	Without *state.Without    // what runs in part only

	Elsewhere bool   // Best needs another root than this
	HoldOver  bool   // the time of an operator's hold is over
	Return    bool   // a decision to go back was cut before this root was told, and it can be
	Paused    string // why nothing may be changed now, "" where it may
	Doubt     bool   // this root runs what came before what was rejected since the registry was not reached with it
	Outage    bool   // of Doubted: the loader of this boot did not reach the registry either

	// What has just happened, by event.
	Offer  Offer
	Try    Attempt
	Result Result
	Reach  string // of Probed and Doubted: why the registry was not reached, "" where it was
	Undo   Fault
	Proof  Proof
	Gates  Gates
	Awaits Awaited
	Fetch  Fetch
	Back   Back
	Prior  Prior
}

// Prior holds the reasons to set what is to be there before services start.
type Prior struct {
	Runs  int    // such runs of the same content that no agent has followed
	Cuts  string // what of it can cut the node off, "" for nothing
	Heard bool   // the registry answered before this boot
}

// Offer holds the generation that the registry, or the disk of a loader, has.
type Offer struct {
	Failed     bool // nothing that may act was had
	Held       bool // newer than what the node has, but it does not take it
	Unchanged  bool // what the node has already
	Pauses     bool // it says that nothing is to be changed
	Generation state.Generation
	Attempts   int    // boots of it that were begun before this one
	Here       bool   // its layer is one that this root can have as it is
	Live       bool   // it can be applied to the running root
	Why        string // why it cannot
	Uncounted  bool   // of a loader: an attempt could not be counted
	Unreached  bool   // of a loader: nobody answered
	Medium     bool   // of a loader: a medium was asked, which nobody reached the registry beside
}

// Fetch holds the result of fetching the layer that a loader is to enter.
type Fetch struct {
	Why       string // it is not here, "" where it is
	Late      bool   // it did not arrive in time
	TooLarge  bool   // it does not fit into the memory of this machine
	Unreached bool   // nobody answered any more
	Medium    bool   // it was read from a medium
}

// Back holds the result of looking for a generation that ran well before.
type Back struct {
	Found   bool   // one can run
	Kexec   string // why the arguments of a kexec may keep this loader from the registry, "" where they do not
	Overdue string // why the trial of this loader is over, "" where it is not
}

// Attempt is a change that is to be made.
type Attempt struct {
	Unreached string // why the registry is not reached before it, of a root that comes up
	Asked     bool   // its publisher asked for a confirmation, and there is something to go back to
	Cuts      string // what of it can cut the node off, "" for nothing
}

// Result holds the result of making a change.
type Result struct {
	Trial      state.Confirm // who has to confirm it, "" where nobody
	Failed     bool          // not all of it was made
	Why        string        // of that
	Busy       bool          // something that it takes away is in use, or the disk takes no writes
	RolledBack bool          // some of it was made, and taken back
	OtherLayer bool          // the layer changes with it
}

// Fault is why a change on trial is undone.
type Fault struct {
	Reason  string // "" where it is not the change's fault
	WayBack bool   // this root can go back to what proved itself, or to what it was at before
}

// Proof holds the evidence for a generation that is in effect.
type Proof struct {
	Of       state.Generation
	Keeps    bool // what ran is kept in effect, and not put in effect
	Applied  bool // a run has put it in effect; else the node ran the same before
	Unproven bool // this root came up with it, or was changed to it, and it has never proved itself
	Gates    bool // it has checks to pass
	Soaking  bool // the same content is judged already
	Health   string
}

// Gates holds the verdict of the checks, and the ways that lead back.
type Gates struct {
	Passed, Failed bool
	CutOff         bool // only a boot takes it back: this one does not reach the registry, or has read what only a start reads
	Why            string
	Good           bool // something ran well before, and can be verified
	SameLayer      bool // it belongs to a layer that this root can have as it is
	Live           bool // the rest of it can be changed on a running root
	Soft           bool // a soft-reboot leads back, over which memory lasts
}

// Awaited describes the root that waits.
type Awaited struct {
	Uncounted bool   // the state disk takes no writes
	Forgotten bool   // without a state disk: the registry had it when this machine started, and another root came up, as far as is known
	Missing   string // what of it is not here yet, "" where it is
}

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

// Phases are all of them, in the order in which they count.
var Phases = []Phase{Changing, Confirming, Prepared, Nothing, Entering, Soaking, Stuck, Partial, Waiting, Idle}

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
func ReadRun(s *state.State, live *state.Live, root RunRoot) Run {
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
