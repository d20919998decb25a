// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// usual is how often a setting is set again where nothing is said.
var usual = int(spec.UsualBudget().Corrections)

// publishPolicy signs an overlay with one sysctl and the policy of it.
func (m *machine) publishPolicy(generation uint64, swappiness string, p spec.Policy) {
	m.t.Helper()
	o := spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: swappiness}}}}
	if p != "" {
		o.Agent = &spec.Agent{Enforce: []spec.Enforcement{{Item: "sysctl", Policy: p}}}
	}
	o.SetNeeds()
	m.Overlay(o, sign.Predicate{Generation: generation})
	m.Current(spec.Fleet{}, time.Now())
}

func drifts(st *spec.Status) (out []string) {
	for _, d := range st.Drift {
		out = append(out, d.Action+" "+d.From)
	}
	return out
}

// What is only to be reported is left alone and does not degrade the node. A new root
// and a newer generation set it all the same, and so does the end of that policy.
func TestDriftIsReported(t *testing.T) {
	m := newMachine(t)
	m.publishPolicy(1, "10", spec.PolicyReport)
	m.boot()
	if st := m.apply(); m.swappiness("") != "10" || len(st.Drift) != 0 {
		t.Fatalf("at boot: %s, %v", m.swappiness(""), drifts(st))
	}
	m.swappiness("77")
	for range 2 * usual {
		st := m.apply()
		if m.swappiness("") != "77" || !slices.Equal(drifts(st), []string{"report 77"}) || st.Health != spec.HealthOK || st.Drift[0].Since.IsZero() ||
			st.Drift[0].Rival != spec.RivalUnknown {
			t.Fatalf("%s, %+v, %s", m.swappiness(""), st.Drift, st.Health)
		}
	}
	m.publishPolicy(2, "20", spec.PolicyReport)
	if st := m.sync(); m.swappiness("") != "20" || st.Generation != 2 || len(st.Drift) != 0 {
		t.Errorf("a newer generation: %s, %v", m.swappiness(""), drifts(st))
	}
	m.swappiness("77")
	m.apply()
	n := m.open()
	plan, err := n.Plan(t.Context())
	if err != nil || len(plan) != 1 || plan[0].Action != spec.ActionReport {
		t.Errorf("plan %+v, %v", plan, err)
	}
	if err := n.RestoreAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if m.apply(); m.swappiness("") != "20" {
		t.Errorf("after restore --all: %s", m.swappiness(""))
	}
	m.swappiness("77")
	m.publishPolicy(3, "20", "")
	if st := m.sync(); m.swappiness("") != "20" || len(st.Drift) != 0 {
		t.Errorf("without the policy: %s, %v", m.swappiness(""), drifts(st))
	}
}

// A change that fails is taken back, also what is only reported otherwise, and what
// somebody had changed before stays.
func TestAReportedSettingIsTakenBack(t *testing.T) {
	m := newMachine(t)
	dirty := m.root + "/proc/sys/vm/dirty_ratio"
	if err := os.WriteFile(dirty, []byte("40\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	publish := func(generation uint64, swappiness string, exec ...spec.Exec) {
		o := spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Agent: &spec.Agent{Enforce: []spec.Enforcement{{Item: "sysctl", Policy: spec.PolicyReport}}},
			Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/dirty_ratio", Value: "5"}, {Key: "vm/swappiness", Value: swappiness}}, Exec: exec}}
		o.SetNeeds()
		m.Overlay(o, sign.Predicate{Generation: generation})
		m.Current(spec.Fleet{}, time.Now())
	}
	publish(1, "10")
	m.boot()
	m.apply()
	if err := os.WriteFile(dirty, []byte("50\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	publish(2, "20", spec.Exec{Name: "fails", Data: "#!/bin/sh\nexit 3\n", OnFailure: "rollback"})
	n := m.open()
	st, err := n.cycle.Sync(t.Context())
	if err == nil || st.Generation != 1 || m.swappiness("") != "10" {
		t.Errorf("%v, generation %d, swappiness %s", err, st.Generation, m.swappiness(""))
	}
	if got, err := os.ReadFile(dirty); err != nil || string(got) != "50\n" {
		t.Errorf("dirty_ratio was set to %q, %v", got, err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}

	// Also what the change itself had set goes back to what it found.
	m.swappiness("77")
	publish(3, "20", spec.Exec{Name: "fails", Data: "#!/bin/sh\nexit 4\n", OnFailure: "rollback"})
	n = m.open()
	if _, err := n.cycle.Sync(t.Context()); err == nil || m.swappiness("") != "77" {
		t.Errorf("%v, swappiness %s", err, m.swappiness(""))
	}
}

// A program that changes a setting again and again wins after five corrections, and is reported
// until an operator clears it. That is so whichever process runs in between.
func TestQuarantine(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	fight := func() (corrected int) {
		for range 3 * usual {
			m.swappiness("77")
			if m.apply(); m.swappiness("") == "10" {
				corrected++
			}
		}
		return corrected
	}
	if got := fight(); got != usual {
		t.Fatalf("%d corrections", got)
	}
	st := m.apply()
	if st.Health != spec.HealthQuarantined || len(st.Drift) != 1 || st.Drift[0].Action != spec.ActionQuarantine || st.Drift[0].Count != usual ||
		st.Drift[0].From != "77" || st.Drift[0].To != "10" || st.Drift[0].Since.IsZero() || st.Drift[0].Rival != spec.RivalUnknown {
		t.Errorf("%s, %+v", st.Health, st.Drift)
	}
	n := m.open()
	if only, err := n.look.Status(t.Context()); err != nil || only.Health != spec.HealthQuarantined {
		t.Errorf("who only looks sees %+v, %v", only, err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}

	// As wanted it is quarantined still.
	m.swappiness("10")
	if st := m.apply(); st.Health != spec.HealthQuarantined || len(st.Drift) != 1 || st.Drift[0].From != "10" || of(t, st, "sysctl").Applied != 1 {
		t.Errorf("as wanted: %s, %+v", st.Health, st.Drift)
	}
	m.swappiness("77")
	m.apply()
	n = m.open()
	if ended, err := n.Clear("sysctl", "vm/swappiness"); err != nil || len(ended) != 1 {
		t.Errorf("clear: %+v, %v", ended, err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if st := m.apply(); st.Health != spec.HealthOK || m.swappiness("") != "10" {
		t.Errorf("cleared: %s, %s", st.Health, m.swappiness(""))
	}

	// So does a generation that wants something else; one that does not, does not.
	fight()
	m.publishItems(2, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}, {Key: "vm/none", Value: "1", Optional: true}}})
	if st := m.sync(); st.Health != spec.HealthQuarantined {
		t.Errorf("another setting changed: %s", st.Health)
	}
	m.publish(3, layerNamed("a"), "20")
	if st := m.sync(); st.Health != spec.HealthOK || m.swappiness("") != "20" {
		t.Errorf("another value: %s, %s, %+v", st.Health, m.swappiness(""), st.Drift)
	}

	// So does one that wants what is there.
	fight()
	m.publish(4, layerNamed("a"), "77")
	if st := m.sync(); st.Health != spec.HealthOK || len(st.Drift) != 0 {
		t.Errorf("what is there is wanted: %s, %+v", st.Health, st.Drift)
	}
	m.publish(5, layerNamed("a"), "20")
	m.sync()

	// A reboot of the same overlay sets it once.
	fight()
	if err := os.Remove(m.root + paths.RunStatus); err != nil {
		t.Fatal(err)
	}
	if m.apply(); m.swappiness("") != "20" {
		t.Errorf("a new root: %s", m.swappiness(""))
	}
	m.swappiness("77")
	if st := m.apply(); st.Health != spec.HealthQuarantined || m.swappiness("") != "77" {
		t.Errorf("after a reboot: %s, %s", st.Health, m.swappiness(""))
	}
}

// A hint at a kind is a look at that kind: what drifts there is corrected and laid to
// whom the evidence names, and the status has the other kinds as they were.
func TestEarly(t *testing.T) {
	require.Root(t)
	m := newMachine(t)
	motd := m.root + "/etc/motd"
	m.publishItems(1, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}, {Key: "vm/none", Value: "1"}}, Files: []spec.File{{Path: "/etc/motd", Content: "hello\n"}}})
	m.boot()
	early := func(kinds ...string) *spec.Status {
		t.Helper()
		n := m.open()
		n.effect.Rival = func(d spec.Drift) string { return "sysctl (pid 7)" }
		n.look.Hints = func(kind string) []string { return []string{"of " + kind} }
		st, err := n.Early(t.Context(), kinds)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		return st
	}
	if st := early("files"); st == nil || m.swappiness("") != "10" {
		t.Fatalf("nothing was set before, and a hint at files sets swappiness %s", m.swappiness(""))
	}
	if st := early("sysctl", "files"); st != nil {
		t.Errorf("nothing is different: %+v", st)
	}
	m.swappiness("77")
	if err := os.WriteFile(motd, []byte("changed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if st := early("limits"); st != nil || m.swappiness("") != "77" {
		t.Errorf("a hint at another kind: %+v, swappiness %s", st, m.swappiness(""))
	}
	st := early("sysctl")
	if st == nil || m.swappiness("") != "10" || len(st.Items) < 5 || !slices.Equal(of(t, st, "sysctl").Hints, []string{"of sysctl"}) {
		t.Fatalf("swappiness %s, %+v", m.swappiness(""), st)
	}
	if got, err := os.ReadFile(motd); err != nil || string(got) != "changed\n" {
		t.Errorf("the file is %q, %v", got, err)
	}
	for range usual {
		m.swappiness("77")
		st = early("sysctl")
	}
	if st.Health != spec.HealthQuarantined || len(st.Drift) != 2 || st.Drift[1].Rival != "sysctl (pid 7)" {
		t.Errorf("%s, %+v", st.Health, st.Drift)
	}
	if st = early("files"); st == nil || st.Health != spec.HealthQuarantined || len(st.Drift) != 2 {
		t.Errorf("beside a quarantine: %+v", st)
	}
	if st := m.apply(); len(st.Drift) != 2 || st.Drift[1].Rival != "sysctl (pid 7)" || !slices.Equal(of(t, st, "sysctl").Hints, []string{"of sysctl"}) {
		t.Errorf("the next look at everything: %+v", st.Drift)
	}
}

func of(t *testing.T, st *spec.Status, kind string) spec.ItemStatus {
	t.Helper()
	i := slices.IndexFunc(st.Items, func(s spec.ItemStatus) bool { return s.Name == kind })
	if i < 0 {
		t.Fatalf("no %s in %+v", kind, st.Items)
	}
	return st.Items[i]
}
