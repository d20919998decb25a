// SPDX-License-Identifier: Apache-2.0

package say

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
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
func NoteAxes(live *record.Live, st *spec.Status, at time.Time) {
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

// condition is something that is not as it should be on a node, and what it makes of the
// node's health.
type condition struct {
	item   string // of the drift that says so
	when   string
	health spec.Health
	kinds  spec.ItemState                     // of items: their drift says so already
	find   func(v *View) (drift []spec.Drift) // of anything else: nothing where all is well
}

// conditions are all of them. The node's health is the worst of those that hold, and its
// detail the first that does.
var conditions = []condition{
	{item: "a kind of item", when: "it is not as the overlay says, and could not be made so",
		health: spec.ItemDegraded.Health(), kinds: spec.ItemDegraded},
	{item: "a kind of item", when: "a setting of it was corrected too often, and is left alone",
		health: spec.ItemQuarantined.Health(), kinds: spec.ItemQuarantined},
	{item: "overlay", when: "the newest generation was rejected on this node, or the last change of the running root failed",
		health: spec.HealthDegraded, find: (*View).failed},
	{item: "overlay", when: "a generation is in effect without what could cut the node off", health: spec.HealthDegraded,
		find: (*View).without},
	{item: "overlay", when: "a change on trial was undone", health: spec.HealthDegraded, find: (*View).undone},
	{item: "agent", when: "the overlay has the registry asked too often or too seldom; the usual time holds",
		health: spec.HealthDegraded, find: (*View).poll},
	{item: "journal", when: "originals are lost with damaged lines of the journal", health: spec.HealthDegraded, find: (*View).damaged},
	{item: "operation", when: "an operation failed, or cannot run", health: spec.HealthDegraded, find: (*View).failedOperations},
	{item: "apparmor", when: "the profiles in the kernel are not those of the layer", health: spec.HealthDegraded,
		find: func(v *View) []spec.Drift { return v.Profiles }},
	{item: "what needs a layer", when: "caisson did not boot this host, which lacks it: it is shown, and no fault of " +
		"the node", health: spec.HealthOK, find: func(v *View) []spec.Drift { return v.Cannot }},
	{item: "agent", when: "metrics could not be published", health: spec.HealthDegraded,
		find: func(v *View) []spec.Drift { return refuse("agent", "metrics", v.Boot.Live.MetricsTrouble) }},
	{item: "agent", when: "parameters are not protected that should be", health: spec.HealthDegraded,
		find: func(v *View) []spec.Drift { return refuse("agent", "protect", v.Boot.Live.Protection.Trouble) }},
	{item: "state", when: "the state disk has a fault, or is not used", health: spec.HealthDegraded,
		find: func(v *View) []spec.Drift { return refuse("state", "disk", v.diskTrouble()...) }},
	{item: "state", when: "the disk does not start the loader that it should", health: spec.HealthDegraded,
		find: func(v *View) []spec.Drift { return refuse("state", "loader", v.Boot.Live.Loader) }},
	{item: "state", when: "the disk starts a newer loader than the published one: it is shown, and no fault of the node",
		health: spec.HealthOK, find: func(v *View) []spec.Drift { return shown("state", "loader", v.Boot.Live.Ahead) }},
	{item: "image", when: "the kernel met a block that is not what was signed", health: spec.HealthDegraded, find: (*View).corrupt},
	{item: "state", when: "a part of what the node remembers was lost", health: spec.HealthDegraded,
		find: func(v *View) []spec.Drift { return refuse("state", "lost", v.State.Lost...) }},
	{item: "check", when: "a watched health check does not hold", health: spec.HealthDegraded, find: (*View).unwell},
	{item: "gates", when: "what runs did not pass its gates, and there is nothing to go back to",
		health: spec.HealthBroken, find: (*View).stuck},
}

// setHealth adds what is found to the drift, and says what is worst and since when the
// health is as it is, where that was noted.
func (v *View) setHealth(st *spec.Status) {
	st.Health = spec.HealthOK
	for _, c := range conditions {
		holds := slices.ContainsFunc(v.Items, func(i spec.ItemStatus) bool { return i.State == c.kinds })
		if c.find != nil {
			found := c.find(v)
			st.Drift, holds = append(st.Drift, found...), len(found) > 0
		}
		if holds {
			st.Health = st.Health.And(c.health)
		}
	}
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

// refuse is the drift of something that cannot be put right on this node as it is: one for
// each reason, none for "".
func refuse(item, key string, reasons ...string) (drift []spec.Drift) {
	for _, why := range reasons {
		if why != "" {
			drift = append(drift, spec.Drift{Item: item, Key: key, Action: spec.ActionRefuse, Reason: why})
		}
	}
	return drift
}

// shown is the drift of something that is another way than published, and well.
func shown(item, key, why string) []spec.Drift {
	drift := refuse(item, key, why)
	for i := range drift {
		drift[i].Action = spec.ActionCannot
	}
	return drift
}

// refuseGeneration is the same of a generation.
func refuseGeneration(item string, generation uint64, why string) []spec.Drift {
	return refuse(item, fmt.Sprint("generation ", generation), why)
}

func (v *View) failed() []spec.Drift {
	if v.Rejected != "" {
		return refuseGeneration("overlay", v.State.Staged.Generation, "it is rejected on this node: "+v.Rejected)
	}
	if back := v.Boot.Live.TakenBack; back != nil {
		return refuseGeneration("overlay", back.Generation, "it was not applied: "+back.Reason)
	}
	return nil
}

func (v *View) without() []spec.Drift {
	if w := v.Boot.Live.Without; w != nil && w.Overlay == v.Generation.Overlay {
		return refuseGeneration("overlay", w.Generation, "it runs without what could cut this node off: "+w.Reason)
	}
	return nil
}

func (v *View) undone() []spec.Drift {
	if t := v.State.Trial; t != nil && !t.Pending() {
		return refuseGeneration("overlay", t.Generation.Generation, "it was undone: "+t.Reason)
	}
	return nil
}

func (v *View) poll() []spec.Drift {
	if v.Overlay.Agent == nil || v.Overlay.Agent.Poll == 0 {
		return nil
	}
	if err := rules.Poll(v.Overlay.Agent.Poll); err != nil {
		return refuse("agent", "poll", err.Error())
	}
	return nil
}

func (v *View) damaged() []spec.Drift {
	if v.Damage == nil {
		return nil
	}
	return refuse("journal", journal.Damaged, v.Damage.Error())
}

func (v *View) failedOperations() (drift []spec.Drift) {
	for _, o := range v.Operations {
		if o.State == spec.OperationFailed || o.State == spec.OperationCannot {
			drift = append(drift, spec.Drift{Item: "operation", Key: o.Name, Action: spec.ActionRefuse, Reason: o.Detail})
		}
	}
	return drift
}

func (v *View) corrupt() (drift []spec.Drift) {
	if !v.boots() {
		return nil
	}
	for _, image := range v.Boot.Live.Corrupt {
		drift = append(drift, refuse("image", ImageName(&v.Boot.Layer, image), CorruptImage)...)
	}
	return drift
}

func (v *View) stuck() []spec.Drift {
	if why := v.Boot.Live.Stuck; why != "" && v.Judged != nil {
		return refuseGeneration("gates", v.Generation.Generation, "it did not pass its gates, and there is nothing to go back to: "+why)
	}
	return nil
}

// unwell says which watched checks do not hold.
func (v *View) unwell() (drift []spec.Drift) {
	for _, name := range slices.Sorted(maps.Keys(v.Unwell)) {
		drift = append(drift, refuse("check", name, v.Unwell[name])...)
	}
	return drift
}

// diskTrouble returns the faults of the state disk.
func (v *View) diskTrouble() []string {
	if v.Unsaved == nil {
		return v.Boot.DiskTrouble
	}
	return append(slices.Clone(v.Boot.DiskTrouble), v.Unsaved.Error())
}
