// SPDX-License-Identifier: Apache-2.0

package say

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// setHealth says what is worst about a node that is not ok, and since when it is as
// it is, where that was noted.
func (v *View) setHealth(st *spec.Status) {
	if st.Health != spec.HealthOK {
		st.HealthDetail = Worst(st)
	}
	if live := &v.Boot.Live; live.Health == st.Health {
		st.HealthSince = state.Time(live.HealthSince)
	}
}

// Worst is the first thing that keeps a node from being ok, "" where nothing does.
func Worst(st *spec.Status) string {
	for _, i := range st.Items {
		if i.State == spec.ItemDegraded {
			return i.Error
		}
	}
	for _, d := range st.Drift {
		if d.Action == spec.ActionRefuse {
			d = rules.Spelled(d)
			return d.Item + " " + d.Key + ": " + d.Reason
		}
	}
	return ""
}

// setActivity says what the node is at: what runs before what waits, and a node that
// only waits for one thing before one that waits for several by name of the first.
func (v *View) setActivity(st *spec.Status, soaks time.Time) {
	in := func(is spec.OperationState) *spec.OperationStatus {
		if i := slices.IndexFunc(st.Operations, func(o spec.OperationStatus) bool { return o.State == is }); i >= 0 {
			return &st.Operations[i]
		}
		return nil
	}
	swap := Swap(st.Operations)
	switch running, waiting := in(spec.OperationRunning), in(spec.OperationWaiting); {
	case running != nil:
		st.Activity, st.ActivitySince = spec.ActivityRunning(running.Name), running.Since
	case st.Trial != nil && st.Trial.Left > 0:
		st.Activity, st.ActivityDetail, st.ActivitySince = spec.ActivityWaiting("confirm"), fmt.Sprintf("generation %d is undone in %d s", st.Trial.Generation, st.Trial.Left), st.Trial.Since
	case len(st.Checks) > 0:
		st.Activity, st.ActivityDetail, st.ActivityUntil = spec.ActivitySoaking, fmt.Sprintf("generation %d has to pass its gates", st.Generation), soaks
	case v.Staging:
		st.Activity, st.ActivityDetail, st.ActivitySince = spec.ActivityStaging, "fetches the layer of overlay "+st.Staged, v.StagingSince
	case st.Pause != nil:
		st.Activity, st.ActivityDetail, st.ActivityUntil = spec.ActivityWaiting("resume"), Pause(&spec.Hold{Author: st.PausedBy, Reason: st.Pause.Reason}), state.Time(st.Pause.Until)
	case st.Staged != "" && swap != nil && swap.State == spec.OperationWaiting:
		st.Activity, st.ActivityDetail, st.ActivityUntil = spec.ActivityWaiting(cmp.Or(swap.For, swap.Name)), "overlay "+st.Staged+" is staged; "+swap.Name+": "+swap.Detail, swap.Next
	case st.Staged != "" && st.Staged == st.Overlay:
		st.Activity, st.ActivityDetail = spec.ActivityWaiting("reboot"), v.way("the layer of overlay "+st.Staged)
	case st.Staged != "":
		st.Activity, st.ActivityDetail = spec.ActivityWaiting("reboot"), v.way("overlay "+st.Staged)
	case waiting != nil:
		st.Activity, st.ActivityUntil = spec.ActivityWaiting(cmp.Or(waiting.For, waiting.Name)), waiting.Next
		st.ActivityDetail = waiting.Name + ": " + waiting.Detail
	default:
		st.Activity = spec.ActivityIdle
	}
	if live := &v.Boot.Live; st.ActivitySince.IsZero() && live.Activity == st.Activity {
		st.ActivitySince = state.Time(live.ActivitySince)
	}
}

// way says of what is staged how the node gets there, where that is known.
func (v *View) way(what string) string {
	return strings.TrimSuffix(what+" is staged: "+v.Move, ": ")
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
