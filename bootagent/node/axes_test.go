// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/require"
)

// Each axis says since when it is so, and a look that changes nothing keeps that.
func TestAxesSaySinceWhen(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	axes := m.sync().Axes()
	for name, x := range map[string]spec.Axis{"sync": axes.Sync, "health": axes.Health, "activity": axes.Activity} {
		if time.Since(x.Since) > time.Minute || x.Since.After(time.Now()) {
			t.Errorf("%s: %+v", name, x)
		}
	}
	if axes.Tracking.State != "following" || axes.Health.State != "ok" || axes.Activity.State != "idle" || axes.Health.Detail != "" {
		t.Errorf("%+v", axes)
	}

	// The next process says what another one has noted.
	n := m.open()
	n.session.Boot.Live.HealthSince, n.session.Boot.Live.ActivitySince = 1, 2
	if err := n.session.Owner.Note(func(*record.Live) {}); err != nil {
		t.Fatal(err)
	}
	if err := n.Freeze("", 0); err != nil {
		t.Fatal(err)
	}
	n.Close() // the lock is wanted below
	axes = m.apply().Axes()
	if axes.Health.Since.Unix() != 1 || axes.Activity.Since.Unix() != 2 || axes.Tracking.State != "frozen" || time.Since(axes.Tracking.Since) > time.Minute {
		t.Errorf("%+v", axes)
	}

	m.publishPaused(2, layerNamed("a"), "10", time.Time{})
	if n := m.open(); n.Forward("") != nil || n.Close() != nil {
		t.Fatal("forward")
	}
	m.sync()
	m.swappiness("77")
	if h := m.apply().Axes().Health; h.State != "degraded" || !strings.Contains(h.Detail, "vm.swappiness") || h.Since.Unix() == 1 {
		t.Errorf("%+v", h)
	}
}

// The activity names the running operation, or the one that is waited for and until when.
func TestActivity(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()

	until := time.Now().Add(time.Hour).Truncate(time.Second)
	m.publishPaused(2, layerNamed("a"), "10", until)
	if a := m.sync().Axes().Activity; a.State != "waiting:resume" || !a.Until.Equal(until) || !strings.Contains(a.Detail, "looking at a fan") {
		t.Errorf("paused: %+v", a)
	}

	opens := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	operation := spec.Operation{Name: "disks/trim", ID: layerNamed("trim"), Type: spec.OneShot, Windows: []string{"night"}, Action: spec.Action{Exec: spec.Command{Argv: []string{"/bin/true"}, Timeout: 5}}}
	m.Overlay(spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Maintenance: &spec.Maintenance{Horizon: opens.Add(24 * time.Hour),
		Windows: map[string]spec.Window{"night": {Intervals: []spec.Interval{{From: opens, To: opens.Add(time.Hour)}}}}, Operations: []spec.Operation{operation}}}, sign.Predicate{Generation: 3})
	m.confirm(time.Now())
	if a := m.sync().Axes().Activity; (a.State != "waiting:clock" && a.State != "waiting:window") || !strings.HasPrefix(a.Detail, "disks/trim: ") {
		t.Errorf("before its window: %+v", a)
	}

	m.publish(4, layerNamed("b"), "10")
	st := m.sync()
	if a := st.Axes().Activity; a.State != "waiting:reboot" || !strings.Contains(a.Detail, st.Staged) {
		t.Errorf("another layer: %+v", a)
	}
	n := m.open()
	release, err := stage.Begin(n.session.Path(paths.RunStaging))
	if err != nil {
		t.Fatal(err)
	}
	st, err = n.look.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if a := st.Axes().Activity; a.State != "staging" || time.Since(a.Since) > time.Minute {
		t.Errorf("while it is fetched: %+v", a)
	}
	release()
	if st, err = n.look.Status(t.Context()); err != nil || st.Activity != "waiting:reboot" {
		t.Errorf("after: %v, %s", err, st.Activity)
	}
}

// Nothing waits for a reboot on an attached host, neither what cannot be begun, which is
// tried again, nor what came after the generation that it is held at.
func TestNothingWaitsForARebootOnAnAttachedHost(t *testing.T) {
	require.Root(t)
	h := newHost(t)
	h.offer(1)
	if _, err := h.agent("sync"); err != nil {
		t.Fatal(err)
	}
	h.Overlay(spec.Overlay{Items: spec.Items{Files: []spec.File{{Path: "/etc/security", Content: "x"}}}}, sign.Predicate{Generation: 2}) // it is a directory
	h.Current(spec.Fleet{}, fixture.Now())
	for _, act := range []string{"sync", "apply"} {
		st, err := h.agent(act)
		if (err == nil) != (act == "apply") || st == nil {
			t.Fatalf("%s: %v", act, err)
		}
		if st.Generation != 1 || st.Staged != "" || st.Activity != spec.ActivityIdle || st.Sync != spec.SyncBehind || !strings.Contains(st.SyncDetail, "/etc/security") ||
			len(st.Drift) != 1 || st.Drift[0].Key != "generation 2" || !strings.HasPrefix(st.Drift[0].Reason, "it was not applied: ") {
			t.Errorf("%s: staged %q, %s %s, %s: %s, %+v", act, st.Staged, st.Activity, st.ActivityDetail, st.Sync, st.SyncDetail, st.Drift)
		}
	}
	h.offer(3)
	if st, err := h.agent("sync"); err != nil || st.Generation != 3 || st.Activity != spec.ActivityIdle || st.Sync != spec.SyncCurrent {
		t.Fatalf("%v, %+v", err, st)
	}
	if st, err := h.agent("rollback"); err != nil || st.Generation != 1 || st.Staged != "" || st.Activity != spec.ActivityIdle || st.Tracking != spec.Held {
		t.Errorf("%v, staged %q, %s, %s", err, st.Staged, st.Activity, st.Tracking)
	}
}
