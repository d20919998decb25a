// SPDX-License-Identifier: Apache-2.0

package say

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/spec"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// well is a node that caisson booted and that is as its overlay says.
func well() *View {
	g := state.Generation{Generation: 7, Overlay: "sha256:aa", Layer: "sha256:bb"}
	current := g
	return &View{Now: now, Up: time.Hour, BootID: "boot", RootID: "root", Agent: "1.0.0",
		Boot:    &record.Boot{Mode: spec.ModeDisk, Sync: spec.SyncCurrent, Live: record.Live{Health: spec.HealthOK, HealthSince: 5, Activity: spec.ActivityIdle, ActivitySince: 6, Asked: 7}},
		State:   &state.State{Tracking: spec.Following, Current: &current},
		Overlay: &spec.Overlay{Core: spec.Core{Node: "node1", Fleet: "metal-a"}}, Generation: g,
		Items: []spec.ItemStatus{{Name: "sysctl", State: spec.ItemOK, Applied: 1}}, Hints: map[string][]string{"sysctl": {"bpf"}}}
}

// What says since when an axis is as it is stays while it is so.
func TestStatusOfANodeThatIsWell(t *testing.T) {
	st := well().Status()
	want := spec.Axes{Tracking: spec.Axis{State: "following"}, Sync: spec.Axis{State: "current"},
		Health: spec.Axis{State: "ok", Since: time.Unix(5, 0).UTC()}, Activity: spec.Axis{State: "idle", Since: time.Unix(6, 0).UTC()}}
	if diff := cmp.Diff(want, st.Axes()); diff != "" {
		t.Error(diff)
	}
	if st.Drift == nil || len(st.Drift) > 0 || st.Staged != "" || st.RootID != "root" || st.BootID != "boot" || st.Asked.Unix() != 7 || !slices.Equal(st.Items[0].Hints, []string{"bpf"}) {
		t.Errorf("%+v", st)
	}
}

func TestStatusHasWhatWasLeftOut(t *testing.T) {
	v := well()
	v.LeftOut = []string{"items.sysctl[].onlyIf"}
	v.State.Fleet.LeftOut = []string{"keysVersion"}
	if got := v.Status().LeftOut; !slices.Equal(got, []string{"items.sysctl[].onlyIf", "fleet:current keysVersion"}) {
		t.Errorf("left out %q", got)
	}
}

// Each condition is seen, named, and counted for what it is; where two hold, the first is
// the detail and the worst is the health.
func TestHealth(t *testing.T) {
	items := func(s spec.ItemState, action string) func(*View) {
		return func(v *View) {
			v.Items[0].State, v.Items[0].Error = s, "sysctl: permission denied"
			v.Drift = []spec.Drift{{Item: "sysctl", Key: "vm/swappiness", Action: action}}
		}
	}
	for name, c := range map[string]struct {
		is     func(v *View)
		health spec.Health
		detail string // begins so
		drift  int    // rows
	}{
		"nothing":            {func(*View) {}, spec.HealthOK, "", 0},
		"what is deferred":   {items(spec.ItemDeferred, spec.ActionDefer), spec.HealthOK, "", 1},
		"a degraded item":    {items(spec.ItemDegraded, spec.ActionChange), spec.HealthDegraded, "sysctl: permission denied", 1},
		"a quarantined item": {items(spec.ItemQuarantined, spec.ActionQuarantine), spec.HealthQuarantined, "", 1},
		"rejected":           {func(v *View) { v.State.Staged, v.Rejected = &state.Generation{Generation: 8}, "it hung" }, spec.HealthDegraded, "overlay generation 8: it is rejected on this node: it hung", 1},
		"taken back":         {func(v *View) { v.Boot.Live.TakenBack = &record.TakenBack{Generation: 8, Reason: "no room"} }, spec.HealthDegraded, "overlay generation 8: it was not applied: no room", 1},
		"in part": {func(v *View) {
			v.Boot.Live.Without = &record.Without{Overlay: "sha256:aa", Generation: 7, Reason: "no route to host"}
		}, spec.HealthDegraded, "overlay generation 7: it runs without what could cut this node off: no route to host", 1},
		"another one in part": {func(v *View) { v.Boot.Live.Without = &record.Without{Overlay: "sha256:cc", Generation: 6} }, spec.HealthOK, "", 0},
		"undone": {func(v *View) {
			v.State.Trial = &state.Trial{Generation: state.Generation{Generation: 8}, Reason: "nobody confirmed it"}
		}, spec.HealthDegraded, "overlay generation 8: it was undone: nobody confirmed it", 1},
		"asked too often":   {func(v *View) { v.Overlay.Agent = &spec.Agent{Poll: 1} }, spec.HealthDegraded, "agent poll: ", 1},
		"a damaged journal": {func(v *View) { v.Damage = errors.New("2 lines") }, spec.HealthDegraded, "journal ", 1},
		"operations": {func(v *View) {
			v.Operations = []spec.OperationStatus{{Name: "a", State: spec.OperationFailed, Detail: "exit status 1"}, {Name: "b", State: spec.OperationDone}, {Name: "c", State: spec.OperationCannot}}
		}, spec.HealthDegraded, "operation a: exit status 1", 2},
		"profiles":           {func(v *View) { v.Profiles = []spec.Drift{{Item: "apparmor", Key: "app", Action: spec.ActionAdd}} }, spec.HealthDegraded, "", 1},
		"what needs a layer": {func(v *View) { v.Cannot = []spec.Drift{{Item: "apt", Key: "vim", Action: spec.ActionCannot}} }, spec.HealthOK, "", 1},
		"metrics":            {func(v *View) { v.Boot.Live.MetricsTrouble = "address in use" }, spec.HealthDegraded, "agent metrics: address in use", 1},
		"protection":         {func(v *View) { v.Boot.Live.Protection.Trouble = "no BPF" }, spec.HealthDegraded, "agent protect: no BPF", 1},
		"a disk":             {func(v *View) { v.Boot.DiskTrouble = []string{"read only", "full"} }, spec.HealthDegraded, "state disk: read only", 2},
		"an image": {func(v *View) {
			v.Boot.Live.Corrupt = []string{"sha256:dd"}
			v.Boot.Layer.Images = []spec.Image{{Name: "base", Blob: spec.Blob{Digest: "sha256:dd"}}}
		}, spec.HealthDegraded, "image base: ", 1},
		"what was lost": {func(v *View) { v.State.Lost = []string{"the floor"} }, spec.HealthDegraded, "state lost: the floor", 1},
		"stuck":         {func(v *View) { v.Boot.Live.Stuck, v.Judged = "ready: no such file", new(Judged) }, spec.HealthBroken, "gates generation 7: it did not pass its gates", 1},
		"stuck, and also a disk": {func(v *View) {
			v.Boot.Live.Stuck, v.Judged, v.Boot.DiskTrouble = "ready", new(Judged), []string{"full"}
		}, spec.HealthBroken, "state disk: full", 2},
	} {
		v := well()
		c.is(v)
		st := v.Status()
		if st.Health != c.health || !strings.HasPrefix(st.HealthDetail, c.detail) || (c.detail == "") != (st.HealthDetail == "") || len(st.Drift) != c.drift {
			t.Errorf("%s: %s, %q, %+v", name, st.Health, st.HealthDetail, st.Drift)
		}
		if since := st.HealthSince.Unix() == 5; since != (c.health == spec.HealthOK) {
			t.Errorf("%s: since %s", name, st.HealthSince)
		}
	}
}

// A change that may be undone counts before what runs, and that before what waits; what waits says
// for what and until when.
func TestActivity(t *testing.T) {
	later := now.Add(time.Hour)
	staged := func(v *View) {
		v.State.Staged = &state.Generation{Generation: 8, Overlay: "sha256:cc", Layer: "sha256:dd"}
		v.Move = "soft-reboot: the kernel stays"
	}
	asks := func(v *View) {
		v.Operations = append(v.Operations, spec.OperationStatus{Name: "disks/trim", State: spec.OperationWaiting, For: spec.ForWindow, Detail: "night opens", Next: later})
	}
	swaps := func(v *View) {
		staged(v)
		v.Operations = append(v.Operations, spec.OperationStatus{Name: "swap", Type: spec.LayerSwapName, State: spec.OperationWaiting, Detail: "its turn", Next: later})
	}
	pauses := func(v *View) {
		v.Pause = &spec.Hold{Author: "ann", Reason: "looking at a fan", Until: later.Unix()}
	}
	scrubs := func(v *View) {
		v.Operations = append(v.Operations, spec.OperationStatus{Name: "disks/scrub", State: spec.OperationRunning})
	}
	soaks := func(v *View) {
		v.Judged = &Judged{gate.Record{Began: 3500, Checks: map[string]gate.Progress{"up": {Since: 3590}}}, []spec.HealthCheck{{Name: "up", Soak: 60, Interval: 10}}}
	}
	for name, c := range map[string]struct {
		is     []func(v *View)
		state  spec.Activity
		detail string
		until  time.Time
	}{
		"nothing":      {nil, spec.ActivityIdle, "", time.Time{}},
		"an operation": {[]func(*View){asks}, "waiting:window", "disks/trim: night opens", later},
		"a reboot":     {[]func(*View){staged, asks}, "waiting:reboot", "overlay sha256:cc is staged: soft-reboot: the kernel stays", time.Time{}},
		"a layer": {[]func(*View){func(v *View) {
			v.State.Staged = &state.Generation{Generation: 7, Overlay: "sha256:aa", Layer: "sha256:dd"}
			v.Move = "reboot: it is not here"
		}}, "waiting:reboot", "the layer of overlay sha256:aa is staged: reboot: it is not here", time.Time{}},
		"a swap":             {[]func(*View){swaps, asks}, "waiting:swap", "overlay sha256:cc is staged; swap: its turn", later},
		"a pause":            {[]func(*View){swaps, pauses}, "waiting:resume", "ann paused this node: looking at a fan", later},
		"a layer that comes": {[]func(*View){swaps, pauses, func(v *View) { v.Staging, v.StagingSince = true, now }}, spec.ActivityStaging, "fetches the layer of overlay sha256:cc", time.Time{}},
		"checks":             {[]func(*View){swaps, func(v *View) { v.Staging = true }, soaks}, spec.ActivitySoaking, "generation 7 has to pass its gates", now.Add(50 * time.Second)},
		"an operator": {[]func(*View){soaks, func(v *View) {
			v.State.Trial = &state.Trial{Generation: state.Generation{Generation: 7}, Ends: 3700, Since: 9}
		}}, "waiting:confirm", "generation 7 is undone in 100 s", time.Time{}},
		"an operator whose time is over": {[]func(*View){scrubs, func(v *View) {
			v.State.Trial = &state.Trial{Generation: state.Generation{Generation: 7}, Ends: 3600, Since: 9}
		}}, "waiting:confirm", "generation 7 is undone in 0 s", time.Time{}},
		"checks while something runs": {[]func(*View){soaks, scrubs}, spec.ActivitySoaking, "generation 7 has to pass its gates", now.Add(50 * time.Second)},
		"what runs":                   {[]func(*View){swaps, scrubs}, "running:disks/scrub", "", time.Time{}},
		"a host of its own":           {[]func(*View){staged, func(v *View) { v.Boot.Mode = spec.ModeAttached }}, spec.ActivityIdle, "", time.Time{}},
		"what was rejected":           {[]func(*View){staged, func(v *View) { v.Rejected = "it hung" }}, spec.ActivityIdle, "", time.Time{}},
		"what has proved good": {[]func(*View){func(v *View) {
			v.State.Staged = &state.Generation{Generation: 7, Overlay: "sha256:aa", Layer: "sha256:bb"}
		}}, spec.ActivityIdle, "", time.Time{}},
	} {
		v := well()
		for _, is := range c.is {
			is(v)
		}
		st := v.Status()
		if st.Activity != c.state || st.ActivityDetail != c.detail || !st.ActivityUntil.Equal(c.until) {
			t.Errorf("%s: %s, %q, until %s", name, st.Activity, st.ActivityDetail, st.ActivityUntil)
		}
	}
}

// A node that goes back waits for what it is to go back to, and says who wanted that.
func TestHeld(t *testing.T) {
	v := well()
	v.State.Keep(spec.Hold{Kind: spec.HoldRollback, Author: "ann", Reason: "a disk", Since: 9, Until: now.Add(time.Hour).Unix()})
	v.State.Current = &state.Generation{Generation: 6, Overlay: "sha256:ee", Layer: "sha256:ff"}
	st := v.Status()
	if st.Tracking != spec.Held || st.TrackingDetail != "this node is rolled back by ann: a disk" || !st.TrackingUntil.Equal(now.Add(time.Hour)) || st.Staged != "sha256:ee" {
		t.Errorf("%s, %q, %s, %s", st.Tracking, st.TrackingDetail, st.TrackingUntil, st.Staged)
	}
	v.Now = now.Add(2 * time.Hour)
	if st := v.Status(); st.Tracking != spec.Following || st.Staged != "" {
		t.Errorf("after its time: %s, %s", st.Tracking, st.Staged)
	}
	v = well()
	v.State.Keep(spec.Hold{Kind: spec.HoldFreeze, Since: 9})
	if st := v.Status(); st.Tracking != spec.Frozen || st.TrackingDetail != "this node is frozen" || st.TrackingSince.Unix() != 9 || st.Staged != "" {
		t.Errorf("%s, %q", st.Tracking, st.TrackingDetail)
	}
}

// An axis that changed is so from now on.
func TestNoteAxes(t *testing.T) {
	v := well()
	v.Boot.DiskTrouble = []string{"full"}
	st := v.Status()
	NoteAxes(&v.Boot.Live, st, now)
	if !st.HealthSince.Equal(now) || v.Boot.Live.Health != spec.HealthDegraded || v.Boot.Live.HealthSince != now.Unix() || v.Boot.Live.ActivitySince != 6 {
		t.Errorf("%s, %+v", st.HealthSince, v.Boot.Live)
	}
	NoteAxes(&v.Boot.Live, v.Status(), now.Add(time.Minute))
	if v.Boot.Live.HealthSince != now.Unix() {
		t.Errorf("%+v", v.Boot.Live)
	}
}

// Where the overlay names nobody to report to there is no report; what a site may not say
// of reports, a signature does not make right.
func TestReporting(t *testing.T) {
	if to, err := Reporting(&spec.Overlay{Agent: &spec.Agent{Poll: 900}}); to != nil || err != nil {
		t.Errorf("%+v, %v", to, err)
	}
	if to, err := Reporting(new(spec.Overlay)); to != nil || err != nil {
		t.Errorf("%+v, %v", to, err)
	}
	to, err := Reporting(&spec.Overlay{Agent: &spec.Agent{Report: &spec.Reporting{Registry: "registry.example/metal", Interval: 60}}})
	if to != nil || err == nil || !strings.Contains(err.Error(), "once in 1h0m0s at most") {
		t.Errorf("%+v, %v", to, err)
	}
	to, err = Reporting(&spec.Overlay{Agent: &spec.Agent{Report: &spec.Reporting{URL: "https://fleet.example", Interval: 300}}})
	if err != nil || to == nil || to.Interval != 300 {
		t.Errorf("%+v, %v", to, err)
	}
}

func TestNextWindow(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 11, 21, hour, 0, 0, 0, time.UTC) }
	m := &spec.Maintenance{Windows: map[string]spec.Window{
		"night": {Intervals: []spec.Interval{{From: at(1), To: at(4)}, {From: at(22), To: at(23)}}},
		"noon":  {Intervals: []spec.Interval{{From: at(12), To: at(13)}}},
		"past":  {Intervals: []spec.Interval{{From: at(0), To: at(1)}}},
	}}
	for hour, want := range map[int]string{2: "night", 5: "noon", 12: "noon", 13: "night"} {
		if got := nextWindow(m, at(hour)); got == nil || got.Name != want {
			t.Errorf("at %d: %+v, want %s", hour, got, want)
		}
	}
	if got := nextWindow(m, at(23)); got != nil {
		t.Errorf("after the last one: %+v", got)
	}
	if got := nextWindow(nil, at(2)); got != nil {
		t.Errorf("without maintenance: %+v", got)
	}
}
