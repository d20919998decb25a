// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// forwards is the parameter that can cut the node off.
const forwards = "/proc/sys/net/ipv4/ip_forward"

func newEarly(t *testing.T) *machine {
	m := newMachine(t)
	m.put(forwards, "0\n")
	m.publishItems(1, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "net/ipv4/ip_forward", Value: "1"}, {Key: "vm/swappiness", Value: "10"}}})
	return m
}

func (m *machine) put(name, text string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.root+name), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.root+name, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) values() string {
	m.t.Helper()
	var all []string
	for _, name := range []string{forwards, "/proc/sys/vm/swappiness"} {
		text, err := os.ReadFile(m.root + name)
		if err != nil {
			m.t.Fatal(err)
		}
		all = append(all, strings.TrimSpace(string(text)))
	}
	return strings.Join(all, " ")
}

// reboot is another root, with a kernel that has its own values.
func (m *machine) reboot() {
	m.t.Helper()
	for _, name := range []string{paths.RunStatus, paths.RunGates} {
		if err := os.Remove(m.root + name); err != nil && !os.IsNotExist(err) {
			m.t.Fatal(err)
		}
	}
	m.put(forwards, "0\n")
	m.put("/proc/sys/vm/swappiness", "60\n")
	m.boot()
}

// early runs what caisson-early.service does; it ends at the first question to its context
// after left others.
func (m *machine) early(left int64) {
	m.t.Helper()
	m.sets(left, spec.WhenEarly)
}

func (m *machine) sets(left int64, when spec.When) {
	m.t.Helper()
	n := m.open()
	defer n.Close() // as a killed process does
	ctx := &ends{Context: m.t.Context()}
	ctx.left.Store(left)
	if err := n.cycle.Early(ctx, when); err != nil {
		m.t.Log(err)
	}
}

// ends is a context that is over after some questions to it.
type ends struct {
	context.Context
	left atomic.Int64
}

func (e *ends) Err() error {
	if e.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// What a new generation sets before services start is on trial from its first write on; the
// agent goes on with it, counts no correction, and ends the trial.
func TestEarlyIsOnTrial(t *testing.T) {
	m := newEarly(t)
	m.boot()
	m.early(1000)
	if s := m.state(); m.values() != "1 10" || !s.Trial.Pending() || !s.Trial.Early || s.Early.Of(s.Trial.Generation.Overlay) != 1 {
		t.Fatalf("%s, %+v, %+v", m.values(), s.Trial, s.Early)
	}
	m.early(1000) // it can be called again
	if st := m.apply(); st.Health != spec.HealthOK || st.Generation != 1 || len(st.Drift) > 0 {
		t.Errorf("%+v", st)
	}
	if s := m.state(); m.values() != "1 10" || s.Trial != nil || s.Early != nil || s.Current == nil {
		t.Errorf("%s, %+v, %+v", m.values(), s.Trial, s.Early)
	}
	m.put("/proc/sys/vm/swappiness", "33\n")
	if m.early(1000); m.values() != "1 33" {
		t.Errorf("the agent has begun, and early sets %s", m.values())
	}
	m.reboot() // it is proved: there is no trial
	m.early(1000)
	if s := m.state(); m.values() != "1 10" || s.Trial != nil {
		t.Errorf("%s, %+v", m.values(), s.Trial)
	}
}

// So is what a boot brings beside a generation of the same layer that has proved itself, to which
// this root can go back.
func TestEarlyOfANewerGeneration(t *testing.T) {
	m := newEarly(t)
	m.boot()
	m.early(1000)
	m.apply()
	m.publishItems(2, layerNamed("a"), items2("20", "1"))
	m.reboot()
	m.early(1000)
	if s := m.state(); m.values() != "1 20" || !s.Trial.Pending() || !s.Trial.Early || s.Current.Generation != 1 {
		t.Fatalf("%s, %+v", m.values(), s.Trial)
	}
	if st := m.apply(); st.Generation != 2 || st.Health != spec.HealthOK || m.values() != "1 20" || m.state().Trial != nil {
		t.Errorf("%+v, trial %+v", st, m.state().Trial)
	}
}

// Where something else of the boot has cut the node off, the boot is judged by that, and the machine
// starts over into what proved itself: to put that in effect on a root that came up with the newer
// one would tell nothing. What the loader wrote stays, too: without a unit that cuts off, as one of
// nftables, the registry would answer, and the next boot would be cut off for good.
func TestEarlyCutsANewerGenerationOff(t *testing.T) {
	r := newRemote(t)
	const name = "/etc/nftables.conf"
	publish := func(generation uint64, swappiness, rules string) {
		o := items2(swappiness, "1")
		o.Files = []spec.File{{Path: name, Content: rules, Mode: "0644"}}
		r.publishItems(generation, layerNamed("a"), o)
	}
	r.within = time.Minute
	publish(1, "10", "accept")
	r.boot()
	r.must(r.applyOnce())
	publish(2, "20", "drop")
	r.reboot()
	r.put(name, "drop")                 // by the loader
	open, err := os.Open(r.root + name) // so that no other file is taken for it
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close() // the test is over
	r.early(1000)
	r.fails, r.within = errCut, 1
	if s := r.state(); r.got() != "1" || !s.Trial.Pending() || !s.Trial.Early {
		t.Fatalf("link %s, %+v", r.got(), s.Trial)
	}
	if st := r.must(r.applyOnce()); st.Generation != 2 || st.Activity != spec.ActivitySoaking || len(st.Checks) != 1 {
		t.Fatalf("generation %d is %s, %+v", st.Generation, st.Activity, st.Checks)
	}
	before, err := open.Stat()
	if after, statErr := os.Stat(r.root + name); err != nil || statErr != nil || !os.SameFile(before, after) {
		t.Errorf("what the loader wrote was taken back: %v, %v", err, statErr)
	}
	r.looks()
	if s := r.state(); r.reboots != 1 || s.Current.Generation != 1 || s.Doubted == nil || s.Doubted.Generation != 2 {
		t.Errorf("%d reboots, %+v", r.reboots, s)
	}
}

// What a verb is told of before the agent has begun waits until what is on trial is in effect.
func TestEarlyComesBeforeAnythingNewer(t *testing.T) {
	m := newEarly(t)
	m.boot()
	m.early(1000)
	m.publishItems(2, layerNamed("a"), items2("20", "1"))
	if st := m.sync(); st.Generation != 1 || m.values() != "1 10" || m.state().Trial != nil {
		t.Errorf("generation %d, %s, %+v", st.Generation, m.values(), m.state().Trial)
	}
	if st := m.sync(); st.Generation != 2 || m.values() != "1 20" {
		t.Errorf("generation %d, %s", st.Generation, m.values())
	}
}

// Wherever early ends, the agent goes on with it, and with the generation that this root came up
// with: the first one of a node, or one beside what has proved itself. The originals stay those of
// its kernel.
func TestEarlyIsCutAnywhere(t *testing.T) {
	for newest, want := range map[uint64]string{1: "1 10", 2: "1 20"} {
		begun := map[bool]bool{}
		for at := range int64(12) {
			m := newEarly(t)
			m.boot()
			if newest == 2 {
				m.apply()
				m.publishItems(2, layerNamed("a"), items2("20", "1"))
				m.reboot()
			}
			m.early(at)
			s := m.state()
			if strings.HasPrefix(m.values(), "1") && !s.Trial.Pending() {
				t.Fatalf("%d ended at %d: what can cut the node off is set, and not on trial", newest, at)
			}
			begun[s.Trial.Pending()] = true
			st := m.apply()
			if s := m.state(); s.Trial != nil || s.Early != nil || s.Current == nil || s.Current.Generation != newest {
				t.Errorf("%d ended at %d: the agent leaves %+v, %+v, %+v", newest, at, s.Trial, s.Early, s.Current)
			}
			if st.Generation != newest || st.Health != spec.HealthOK || m.values() != want {
				t.Errorf("%d ended at %d: %s, %+v", newest, at, m.values(), st)
			}
			n := m.open()
			if err := n.RestoreAll(t.Context()); err != nil {
				t.Errorf("%d ended at %d: %v", newest, at, err)
			}
			if got := m.values(); got != "0 60" {
				t.Errorf("%d ended at %d: the originals are %s", newest, at, got)
			}
		}
		if !begun[true] {
			t.Errorf("%d: no end fell behind the begin", newest)
		}
	}
}

// A boot that ends before its agent has come, as one whose power is cut, is one attempt of what it
// tried: the next boot tries that again, and the one after three the generation before.
func TestABootThatEndsBehindEarly(t *testing.T) {
	m := newEarly(t)
	m.boot()
	m.apply()
	m.publishItems(2, layerNamed("a"), items2("20", "1"))
	ended := func() {
		t.Helper()
		m.reboot()
		m.early(1000)
		s := m.state()
		if s.Trial == nil || s.Trial.Generation.Generation != 2 || s.Staged == nil {
			t.Fatalf("%+v, staged %+v", s.Trial, s.Staged)
		}
		s.Trial.Boot = "another"
		if err := state.View(m.root + paths.State).Save(s); err != nil {
			t.Fatal(err)
		}
	}
	ended()
	ended()
	m.reboot()
	if st := m.apply(); st.Generation != 2 || st.Health != spec.HealthOK || m.values() != "1 20" || m.state().Trial != nil {
		t.Errorf("tried again: %s, %+v", m.values(), st)
	}
	m.publishItems(3, layerNamed("a"), items2("30", "1"))
	m.reboot()
	m.early(1000)
	s := m.state()
	s.Trial.Boot, s.Staged.Attempts = "another", state.MaxAttempts
	if err := state.View(m.root + paths.State).Save(s); err != nil {
		t.Fatal(err)
	}
	b, err := record.LoadBoot(m.root + paths.RunBoot) // of the loader that goes back
	if err != nil {
		t.Fatal(err)
	}
	m.reboot()
	b.Generation = *m.state().Current
	if err := record.SaveBoot(m.root+paths.RunBoot, b); err != nil {
		t.Fatal(err)
	}
	if st := m.sync(); st.Generation != 2 || st.Rejected == nil || !strings.Contains(st.Rejected.Reason, "none came up") || m.state().Trial != nil {
		t.Errorf("after three: %+v, rejected %+v, %+v", st, st.Rejected, m.state().Trial)
	}
}

// A boot that the registry did not answer sets nothing early that can cut the node off, and one
// after two that got no further than early nothing at all.
func TestEarlyIsCareful(t *testing.T) {
	m := newEarly(t)
	m.boot()
	b, err := record.LoadBoot(m.root + paths.RunBoot)
	if err != nil {
		t.Fatal(err)
	}
	b.Live.Began = ""
	if err := record.SaveBoot(m.root+paths.RunBoot, b); err != nil {
		t.Fatal(err)
	}
	if m.early(1000); m.values() != "0 10" || m.state().Trial != nil {
		t.Errorf("unheard: %s, %+v", m.values(), m.state().Trial)
	}
	s, folder := m.state(), state.View(m.root+paths.State)
	s.Early, s.Trial = nil, &state.Trial{Generation: *s.Staged, Boot: "another", Confirm: state.ByReach}
	if err := folder.Save(s); err != nil {
		t.Fatal(err)
	}
	m.put("/proc/sys/vm/swappiness", "60\n")
	if m.early(1000); m.values() != "0 10" {
		t.Errorf("beside a trial of another boot: %s", m.values())
	}
	s = m.state()
	s.Trial = nil
	if err := folder.Save(s); err != nil {
		t.Fatal(err)
	}
	for boot, want := range []string{"1 10", "0 60", "1 10"} { // the second of two, none, and again
		m.reboot()
		m.early(1000)
		if got := m.values(); got != want {
			t.Errorf("boot %d after: %s, want %s", boot, got, want)
		}
		s := m.state()
		s.Trial = nil // of a kernel that is gone
		if err := folder.Save(s); err != nil {
			t.Fatal(err)
		}
	}
}

// What comes before remote-fs.target is mounted as who made the root knew, and nothing else is
// set or counted; the agent makes the rest.
func TestMountsBeforeRemoteFS(t *testing.T) {
	require.Root(t)
	m := newMachine(t)
	table := m.root + "/proc/self/mountinfo"
	if err := errors.Join(os.Remove(table), os.Symlink("/proc/self/mountinfo", table)); err != nil {
		t.Fatal(err)
	}
	mount := func(name string, options, after []string) spec.Mount {
		at := m.root + "/" + name
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) }) // it is this test's alone, if it is there
		return spec.Mount{ID: name, Device: "tmpfs", Type: "tmpfs", Target: at, Options: options, After: after}
	}
	there := func() (list string) {
		for _, name := range []string{"local", "remote", "late"} {
			if text, err := os.ReadFile(table); err != nil || strings.Contains(string(text), " "+m.root+"/"+name+" ") {
				list += name + " "
			}
		}
		return list
	}
	m.publishItems(1, layerNamed("a"), spec.Items{
		Mounts: []spec.Mount{mount("local", nil, nil), mount("remote", []string{"_netdev"}, nil), mount("late", nil, []string{"x.service"})},
		Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}}})
	m.boot()
	m.sets(1000, spec.WhenRemote) // who made the root does not know of it
	if got := there(); got != "" {
		t.Errorf("mounted: %s", got)
	}
	m.put(paths.Remote, m.root+"/remote\n")
	m.early(1000)
	if got := there(); got != "local " || m.swappiness("") != "10" {
		t.Errorf("early: mounted %s", got)
	}
	runs := m.state().Early.Of(m.state().Staged.Overlay)
	m.put("/proc/sys/vm/swappiness", "33\n") // of somebody else
	m.sets(1000, spec.WhenRemote)
	if got, s := there(), m.state(); got != "local remote " || m.swappiness("") != "33" || s.Early.Of(s.Staged.Overlay) != runs || s.Trial != nil {
		t.Errorf("remote: mounted %s, %+v", got, s)
	}
	if st := m.apply(); there() != "local remote late " || st.Health != spec.HealthOK || m.swappiness("") != "10" {
		t.Errorf("mounted: %s; %+v", there(), st)
	}
	if err := unix.Unmount(m.root+"/remote", 0); err != nil {
		t.Fatal(err)
	}
	if m.sets(1000, spec.WhenRemote); there() != "local late " {
		t.Errorf("the agent has begun, and there is %s", there())
	}
}

// What was set early and cuts the node off is taken back before anything is held against it.
func TestEarlyCutsOff(t *testing.T) {
	r := newRemote(t)
	r.publishLink(1, layerNamed("a"), "10", "0")
	r.boot()
	r.early(1000)
	if r.got() != "0" || !r.state().Trial.Pending() {
		t.Fatal(r.got(), r.state().Trial)
	}
	st := r.must(r.applyOnce())
	if s := r.state(); s.Trial.Pending() || s.Early != nil || r.got() != "1" || st.Generation != 1 || r.swappiness("") != "10" {
		t.Errorf("link %s, %+v, %+v", r.got(), s.Trial, st)
	}
}

// It asks nobody, and a node without a record of its boot is none of its own.
func TestEarlyNeedsNobody(t *testing.T) {
	m := newEarly(t)
	if err := SetEarly(t.Context(), session.Options{Root: m.root, Say: t.Logf}, spec.WhenEarly); err == nil || !strings.Contains(err.Error(), "machine-id") {
		t.Errorf("without a boot record: %v", err)
	}
	m.boot()
	if err := SetEarly(t.Context(), session.Options{Root: m.root, Say: t.Logf}, spec.WhenEarly); err != nil {
		t.Errorf("nobody is trusted: %v", err)
	}
}
