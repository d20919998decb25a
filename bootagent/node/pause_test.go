// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// publishPaused signs what publish does, and a pause.
func (m *machine) publishPaused(generation uint64, layer, swappiness string, until time.Time) {
	m.t.Helper()
	p := &spec.Pause{Reason: "looking at a fan"}
	if !until.IsZero() {
		p.Until = until.Unix()
	}
	m.Overlay(spec.Overlay{Core: spec.Core{Layer: layer}, Pause: p, Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: swappiness}}}},
		sign.Predicate{Generation: generation})
	m.confirm(time.Now())
}

func (m *machine) swappiness(set string) string {
	m.t.Helper()
	name := m.root + "/proc/sys/vm/swappiness"
	if set != "" {
		if err := os.WriteFile(name, []byte(set+"\n"), 0o644); err != nil {
			m.t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(string(got))
}

// A paused node looks and reports, and changes nothing until it is resumed.
func TestAPausedNodeChangesNothing(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	m.publishPaused(2, layerNamed("a"), "10", time.Time{})
	if st := m.sync(); st.Generation != 2 || st.Sync != spec.SyncCurrent || st.Pause == nil || st.Pause.Reason != "looking at a fan" {
		t.Errorf("generation %d, %s, pause %+v", st.Generation, st.Sync, st.Pause)
	}
	m.swappiness("77")
	for range 2 {
		if st := m.sync(); len(st.Drift) != 1 || st.Drift[0].From != "77" || st.Pause == nil {
			t.Errorf("drift %+v, pause %+v", st.Drift, st.Pause)
		}
		if st := m.apply(); len(st.Drift) != 1 {
			t.Errorf("apply: drift %+v", st.Drift)
		}
		if got := m.swappiness(""); got != "77" {
			t.Errorf("a paused node set swappiness to %s", got)
		}
	}
	m.publish(3, layerNamed("a"), "10")
	if st := m.sync(); st.Generation != 3 || len(st.Drift) != 0 || st.Pause != nil {
		t.Errorf("resumed: generation %d, drift %+v, pause %+v", st.Generation, st.Drift, st.Pause)
	}
	if got := m.swappiness(""); got != "10" {
		t.Errorf("a resumed node left swappiness at %s", got)
	}
}

// A pause ends by itself, and begins with a change that is not applied.
func TestAPauseIsOver(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	m.publishPaused(2, layerNamed("a"), "20", time.Now().Add(time.Hour))
	if st := m.sync(); st.Pause == nil || m.swappiness("") != "10" {
		t.Errorf("pause %+v, swappiness %s", st.Pause, m.swappiness(""))
	}
	if st := m.later(time.Hour+time.Second, m.apply); st.Pause != nil || m.swappiness("") != "20" {
		t.Errorf("after its end: pause %+v, swappiness %s", st.Pause, m.swappiness(""))
	}
}

// A node that comes up is made what it should be, though it is paused.
func TestAPausedNodeComesUp(t *testing.T) {
	m := newMachine(t)
	m.publishPaused(1, layerNamed("a"), "10", time.Time{})
	m.boot()
	if st := m.apply(); st.Pause == nil || m.swappiness("") != "10" {
		t.Errorf("pause %+v, swappiness %s", st.Pause, m.swappiness(""))
	}
	m.swappiness("77")
	if m.apply(); m.swappiness("") != "77" {
		t.Error("later it was set again")
	}
	// A soft-reboot keeps files in /run, and makes another root.
	st := m.open()
	st.session.Boot.RootID = "another"
	if err := st.session.Owner.Note(func(*record.Live) {}); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.root + paths.RunStatus); err != nil {
		t.Fatal(err)
	}
	if m.apply(); m.swappiness("") != "10" {
		t.Error("another root was left as it came up")
	}
}

// A pause counts although what it came with waits for a reboot.
func TestAPauseBesideAnotherLayer(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	m.publishPaused(2, layerNamed("b"), "20", time.Time{})
	if st := m.sync(); st.Generation != 1 || st.Sync != spec.SyncBehind || st.Pause == nil {
		t.Errorf("generation %d, %s, pause %+v", st.Generation, st.Sync, st.Pause)
	}
	m.swappiness("77")
	if st := m.apply(); m.swappiness("") != "77" || len(st.Drift) != 1 {
		t.Errorf("swappiness %s, drift %+v", m.swappiness(""), st.Drift)
	}
}
