// SPDX-License-Identifier: Apache-2.0

package say

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

// activity is something that a node is at, or waits for.
type activity struct {
	state string // NAME is that of an operation
	when  string
	look  func(v *View, st *spec.Status) *doing // nil where the node is not at that
}

// doing holds the activity axis.
type doing struct {
	is           spec.Activity
	detail       string
	since, until time.Time // zero where it is not known
}

// activities are in the order in which they count: a change that may be undone, which nothing
// hides, what runs, and what waits. A node that waits for several things waits for the first of them.
var activities = []activity{
	{"waiting:confirm", "a change is in effect until an operator confirms it, or it is undone", (*View).unconfirmed},
	{string(spec.ActivitySoaking), "a change is in effect and has to pass its gates", (*View).soaking},
	{"running:NAME", "an operation runs", (*View).running},
	{string(spec.ActivityStaging), "the layer of what waits is being fetched", (*View).fetching},
	{"waiting:resume", "an operator or the fleet paused the node", (*View).paused},
	{"waiting:WHAT", "what waits for a reboot has a time for that: WHAT is what the swap waits for", (*View).swapping},
	{"waiting:reboot", "an overlay or a layer waits for a reboot", (*View).rebooting},
	{"waiting:WHAT", "an operation waits: WHAT is for what, or the operation's name", (*View).waiting},
}

// setActivity says what the node is at, and since when, where that was noted.
func (v *View) setActivity(st *spec.Status) {
	at := &doing{is: spec.ActivityIdle}
	for _, a := range activities {
		if d := a.look(v, st); d != nil {
			at = d
			break
		}
	}
	st.Activity, st.ActivityDetail, st.ActivitySince, st.ActivityUntil = at.is, at.detail, at.since, at.until
	if live := &v.Boot.Live; st.ActivitySince.IsZero() && live.Activity == st.Activity {
		st.ActivitySince = state.Time(live.ActivitySince)
	}
}

func (v *View) running(st *spec.Status) *doing {
	o := first(st.Operations, spec.OperationRunning)
	if o == nil {
		return nil
	}
	return &doing{is: spec.ActivityRunning(o.Name), since: o.Since}
}

func (v *View) unconfirmed(st *spec.Status) *doing {
	if t := v.State.Trial; !t.Pending() || t.Ends == 0 {
		return nil
	}
	return &doing{is: spec.ActivityWaiting("confirm"),
		detail: fmt.Sprintf("generation %d is undone in %d s", st.Trial.Generation, st.Trial.Left), since: st.Trial.Since}
}

func (v *View) soaking(st *spec.Status) *doing {
	if len(st.Checks) == 0 {
		return nil
	}
	return &doing{is: spec.ActivitySoaking, detail: fmt.Sprintf("generation %d has to pass its gates", st.Generation), until: v.soaked()}
}

func (v *View) fetching(st *spec.Status) *doing {
	if !v.Staging {
		return nil
	}
	return &doing{is: spec.ActivityStaging, detail: "fetches the layer of overlay " + st.Staged, since: v.StagingSince}
}

func (v *View) paused(st *spec.Status) *doing {
	if st.Pause == nil {
		return nil
	}
	return &doing{is: spec.ActivityWaiting("resume"),
		detail: Pause(&spec.Hold{Author: st.PausedBy, Reason: st.Pause.Reason}), until: state.Time(st.Pause.Until)}
}

func (v *View) swapping(st *spec.Status) *doing {
	swap := Swap(st.Operations)
	if st.Staged == "" || swap == nil || swap.State != spec.OperationWaiting {
		return nil
	}
	return &doing{is: spec.ActivityWaiting(cmp.Or(swap.For, swap.Name)), detail: "overlay " + st.Staged +
		" is staged; " + swap.Name + ": " + swap.Detail, until: swap.Next}
}

func (v *View) rebooting(st *spec.Status) *doing {
	if st.Staged == "" {
		return nil
	}
	what := "overlay " + st.Staged
	if st.Staged == st.Overlay {
		what = "the layer of " + what
	}
	return &doing{is: spec.ActivityWaiting("reboot"), detail: strings.TrimSuffix(what+" is staged: "+v.Move, ": ")}
}

func (v *View) waiting(st *spec.Status) *doing {
	o := first(st.Operations, spec.OperationWaiting)
	if o == nil {
		return nil
	}
	return &doing{is: spec.ActivityWaiting(cmp.Or(o.For, o.Name)), detail: o.Name + ": " + o.Detail, until: o.Next}
}

// first is the first operation in a state, nil where none is.
func first(list []spec.OperationStatus, is spec.OperationState) *spec.OperationStatus {
	if i := slices.IndexFunc(list, func(o spec.OperationStatus) bool { return o.State == is }); i >= 0 {
		return &list[i]
	}
	return nil
}

// NoteAxes notes since when health and activity are as they are, in the record of this boot
// and in the status.
func NoteAxes(live *state.Live, st *spec.Status, at time.Time) {
	now := at.Unix()
	if live.Health != st.Health {
		live.Health, live.HealthSince = st.Health, now
		st.HealthSince = state.Time(now)
	}
	if live.Activity != st.Activity {
		live.Activity, live.ActivitySince = st.Activity, now
		if st.ActivitySince.IsZero() {
			st.ActivitySince = state.Time(now)
		}
	}
}

// Swap is where the swap of the layer stands, nil where there is none.
func Swap(list []spec.OperationStatus) *spec.OperationStatus {
	for i := range list {
		if list[i].Type == spec.LayerSwapName {
			return &list[i]
		}
	}
	return nil
}
