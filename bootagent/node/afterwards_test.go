// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// disturbed is a machine with an operation that takes a slot and leaves the node as
// its script does. Its gate is a file.
type disturbed struct {
	*machine
	runner *process.Group
	slot   spec.Slot
}

func newDisturbed(t *testing.T, script string, retries int64) *disturbed {
	d := &disturbed{newMachine(t), new(process.Group), spec.Slot{Max: 1, Directory: t.TempDir()}}
	d.enrolled()
	d.ready("")
	o := spec.Operation{ID: "sha256:" + strings.Repeat("ab", 32), Name: "m/o", Type: spec.OneShot, Disruptive: true, Order: &spec.Order{Slot: "g"},
		Action: spec.Action{Exec: spec.Command{Argv: []string{"/bin/sh", "-c", script, "sh", d.root + "/ready"}, Timeout: 60}, Check: &spec.Command{Argv: []string{"/bin/sh", "-c", "test -e " + d.root + "/done"}, Timeout: 60}}}
	d.Overlay(spec.Overlay{Core: layer("a"), Gates: &spec.Gates{Checks: []spec.HealthCheck{{Name: "ready", File: "/ready", Timeout: 1, Interval: 1, Retries: retries}}},
		Maintenance: &spec.Maintenance{Horizon: time.Now().AddDate(1, 0, 0), Slots: map[string]spec.Slot{"g": d.slot}, Operations: []spec.Operation{o}}}, sign.Predicate{Generation: 1})
	d.confirm(fixture.Now())
	d.boot()
	d.apply()
	d.judge(5)
	return d
}

// operate opens the node as the service does, once.
func (d *disturbed) operate() spec.OperationStatus {
	d.t.Helper()
	n, err := Open(d.t.Context(), d.options(), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	defer n.Close() // the test is over
	all, err := n.Operate(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return all[0]
}

func (d *disturbed) options() session.Options {
	clock := func() time.Time { return time.Now().Add(time.Duration(d.kernel.passed.Load())) }
	return traced(session.Options{Root: d.root, Kernel: &d.kernel, Clock: clock, Runner: d.runner, Say: d.t.Logf, Reboot: func(context.Context) error { return nil }})
}

// until operates until the operation stands as it should, and looks afterwards or not.
func (d *disturbed) until(state spec.OperationState, what, words string, look bool) {
	d.t.Helper()
	var s spec.OperationStatus
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if s = d.operate(); s.State == state && s.For == what && strings.Contains(s.Detail, words) {
			return
		}
		if look {
			wait, err := LookAfter(d.t.Context(), d.options())
			if err != nil {
				d.t.Fatal(err)
			}
			d.kernel.Sleep(d.t.Context(), max(wait, time.Second))
		}
	}
	d.t.Fatalf("%+v; want %s for %q (%s)", s, state, what, words)
}

// free reports whether another node gets the slot.
func (d *disturbed) free() bool {
	other := post.Holder{Node: "other"}
	if err := other.Take(d.t.Context(), "g", d.slot); err != nil {
		return false
	}
	if err := other.Release(d.t.Context(), "g", d.slot); err != nil {
		d.t.Fatal(err)
	}
	return true
}

// TestAnOperationsSlotWaitsForTheGates: after the act the node's checks are looked at,
// and only when they hold may the next node of the group act.
func TestAnOperationsSlotWaitsForTheGates(t *testing.T) {
	d := newDisturbed(t, `rm "$1"`, 1000)
	d.until(spec.OperationWaiting, spec.ForGates, "ready was not looked at yet", false)
	for range 3 {
		if s := d.operate(); s.For != spec.ForGates {
			t.Fatalf("nobody has looked, and it is %+v", s)
		}
	}
	d.until(spec.OperationWaiting, spec.ForGates, "the file is not there", true)
	if d.free() {
		t.Error("the slot was given back before the node was well")
	}
	d.ready("")
	d.until(spec.OperationDone, "", "", true)
	if !d.free() {
		t.Error("the slot is not given back")
	}
	if wait, err := LookAfter(t.Context(), d.options()); wait != 0 || err != nil {
		t.Errorf("it is looked at further: %v, %v", wait, err)
	}
}

// TestAnOperationThatBreaksItsNode keeps its slot: the group halts until the node is
// well again, which needs nobody to say so.
func TestAnOperationThatBreaksItsNode(t *testing.T) {
	d := newDisturbed(t, `rm "$1"`, 1)
	d.until(spec.OperationFailed, "", "the node is not well after it: ready: ", true)
	if s := d.operate(); d.free() || !strings.Contains(s.Detail, "it keeps its slot of g") {
		t.Errorf("%+v", s)
	}
	if err := os.WriteFile(d.root+"/done", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.ready("")
	d.until(spec.OperationDone, "", "", true)
	if !d.free() {
		t.Error("the slot is not given back")
	}
}

// TestWhatCannotRunSaysWhy: a node without a memory leaves alone what disturbs and has
// no check, and its status says so.
func TestWhatCannotRunSaysWhy(t *testing.T) {
	m := newMachine(t)
	m.enrolled()
	o := spec.Operation{ID: "sha256:" + strings.Repeat("ab", 32), Name: "m/reboot", Type: spec.OneShot, Disruptive: true,
		Action: spec.Action{Exec: spec.Command{Argv: []string{"/bin/true"}, Timeout: 60}}}
	m.Overlay(spec.Overlay{Core: layer("a"), Maintenance: &spec.Maintenance{Horizon: time.Now().AddDate(1, 0, 0), Operations: []spec.Operation{o}}}, sign.Predicate{Generation: 1})
	m.confirm(fixture.Now())
	m.boot()
	b, err := record.LoadBoot(m.root + paths.RunBoot)
	if err != nil {
		t.Fatal(err)
	}
	b.Disk = ""
	if err := record.SaveBoot(m.root+paths.RunBoot, b); err != nil {
		t.Fatal(err)
	}
	m.apply()
	st := m.sync()
	if len(st.Drift) != 1 || st.Drift[0].Key != "m/reboot" || !strings.Contains(st.Drift[0].Reason, "no ledger") || !strings.Contains(st.HealthDetail, "no ledger") {
		t.Errorf("%q, %+v", st.HealthDetail, st.Drift)
	}
}
