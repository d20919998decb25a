// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// publishGated signs an overlay with one sysctl that counts as good when a file exists.
func (m *machine) publishGated(generation uint64, core spec.Core, swappiness string, retries int64) {
	m.t.Helper()
	m.Overlay(spec.Overlay{Core: core, Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: swappiness}}},
		Gates: &spec.Gates{Checks: []spec.HealthCheck{{Name: "ready", File: "/ready" + swappiness, Timeout: 1, Interval: 1, Retries: retries}}}}, sign.Predicate{Generation: generation})
	m.confirm(time.Now())
}

// ready makes the check of a value hold.
func (m *machine) ready(swappiness string) {
	m.t.Helper()
	if err := os.WriteFile(m.root+"/ready"+swappiness, nil, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// judge looks until nothing is judged any more, or as often as it may. It returns the
// last status and how often a reboot was asked for.
func (m *machine) judge(looks int) (st *spec.Status, reboots int) {
	m.t.Helper()
	o := traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: m.t.Logf, Reboot: func(context.Context) error { reboots++; return nil }})
	for range looks {
		wait, now, err := Judge(m.t.Context(), o, nil)
		if err != nil {
			m.t.Fatal(err)
		}
		if now != nil {
			st = now
		}
		if wait == 0 {
			return st, reboots
		}
		if reboots > 0 {
			return st, reboots
		}
		m.kernel.Sleep(m.t.Context(), wait)
	}
	return st, reboots
}

func (m *machine) state() *state.State {
	m.t.Helper()
	s, err := state.View(m.root + paths.State).Load()
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// enrolled leaves what the loader does, for verbs that are given no bootstrap.
func (m *machine) enrolled() {
	m.t.Helper()
	data, err := spec.Encode(m.bootstrap())
	if err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.root+paths.RunBootstrap, data, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func layer(name string) spec.Core { return spec.Core{Layer: layerNamed(name)} }

// runningMachine is a machine on which generation 1 has proved itself.
func runningMachine(t *testing.T) *machine {
	m := newMachine(t)
	m.enrolled()
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	return m
}

// The service and a verb may look at a change at once. What was found first is not forgotten for
// what the other one finds, which had begun to look before.
func TestTwoLookAtAChange(t *testing.T) {
	m := runningMachine(t)
	m.publishGated(2, layer("a"), "20", 5)
	m.sync()
	o := traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf})
	n, err := Read(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	before, err := n.soak.Judging()
	if err = errors.Join(err, n.Close()); err != nil || before == nil {
		t.Fatal(before, err)
	}
	m.ready("20")
	looked := n.soak.Prober().Look(t.Context(), before.Record, before.Checks())
	if err := os.Remove(m.root + "/ready20"); err != nil {
		t.Fatal(err)
	}
	m.judge(1)
	if n, err = Open(t.Context(), o, nil); err != nil {
		t.Fatal(err)
	}
	wait, _, err := n.cycle.Judge(t.Context(), before, looked)
	if err = errors.Join(err, n.Close()); err != nil || wait == 0 {
		t.Errorf("it is looked at again in %s, %v", wait, err)
	}
	found, err := gate.Load(m.root + paths.RunGates)
	if err != nil || found == nil || found.Checks["ready"].Failures != 1 || m.state().Current.Generation != 1 {
		t.Errorf("%+v, %v, and generation %d is current", found, err, m.state().Current.Generation)
	}
}

// A change counts as good when its checks hold, and not before.
func TestAChangeHasToPassItsGates(t *testing.T) {
	m := runningMachine(t)
	m.publishGated(2, layer("a"), "20", 5)
	st := m.sync()
	if st.Generation != 2 || m.swappiness("") != "20" || m.state().Current.Generation != 1 || st.Staged != "" {
		t.Fatalf("in effect: generation %d, swappiness %s, current %+v, staged %q", st.Generation, m.swappiness(""), m.state().Current, st.Staged)
	}
	bounds := func(after time.Duration) (over bool, err error) {
		return uptime.DeadlineOver(m.root+paths.RunJudged, m.kernel.Up()+after, 0)
	}
	if over, err := bounds(15 * time.Minute); over || err != nil {
		t.Errorf("an agent that is late is ended: %v, %v", over, err)
	}
	if over, err := bounds(16 * time.Minute); !over || err != nil {
		t.Errorf("an agent that does not look is not ended: %v, %v", over, err)
	}
	defer func() {
		if _, err := bounds(0); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("nothing is judged any more, and the agent is bound still: %v", err)
		}
	}()
	if st.Activity != spec.ActivitySoaking || len(st.Checks) != 1 || st.Checks[0].Holds {
		t.Errorf("it is judged: %s, %+v", st.Activity, st.Checks)
	}
	// The service looks at the node meanwhile, and is started again: what is judged stays in effect.
	if st, _ = m.judge(2); st == nil || st.Generation != 2 || st.Checks[0].Failures == 0 {
		t.Fatalf("%+v", st)
	}
	if st := m.apply(); st.Generation != 2 || m.state().Current.Generation != 1 {
		t.Errorf("after another look: generation %d, current %+v", st.Generation, m.state().Current)
	}
	m.ready("20")
	if st, _ = m.judge(5); st.Generation != 2 || st.Activity != spec.ActivityIdle || len(st.Checks) != 0 || st.Health != spec.HealthOK {
		t.Errorf("passed: %+v", st)
	}
	s := m.state()
	if s.Current.Generation != 2 || s.Staged != nil {
		t.Errorf("passed: current %+v, staged %+v", s.Current, s.Staged)
	}
	if wait, _, err := Judge(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf}), nil); wait != 0 || err != nil {
		t.Errorf("what has passed is judged again: %v, %v", wait, err)
	}
}

// What bounds a judgement that is over ends under the lock: who has it may begin one just now.
func TestABoundEndsUnderTheLock(t *testing.T) {
	m := runningMachine(t)
	bound := m.root + paths.RunJudged
	if _, err := uptime.RenewDeadline(bound, m.kernel.Up(), time.Hour); err != nil {
		t.Fatal(err)
	}
	other := m.open()
	o := traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := Judge(ctx, o, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beside who has the lock: %v", err)
	}
	if _, err := os.Stat(bound); err != nil {
		t.Error(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Judge(t.Context(), o, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(bound); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is bound still: %v", err)
	}
}

// Where the layer stayed, the overlay is to blame: the one before comes back without a
// reboot, and what was rejected is not tried again until somebody says so.
func TestAFailedGateBringsThePreviousOverlayBack(t *testing.T) {
	m := runningMachine(t)
	m.publishGated(2, layer("a"), "20", 1)
	m.sync()
	st, reboots := m.judge(5)
	if st == nil || st.Generation != 1 || m.swappiness("") != "10" || reboots != 0 {
		t.Fatalf("generation %d, swappiness %s, %d reboots", st.Generation, m.swappiness(""), reboots)
	}
	rejected := func(when string, st *spec.Status) {
		t.Helper()
		if st.Generation != 1 || st.Rejected == nil || st.Rejected.Generation != 2 || !strings.Contains(st.Rejected.Reason, "ready: the file is not there (failed 2 times)") ||
			st.Rejected.At.IsZero() || st.Health != spec.HealthDegraded || st.Staged != "" || m.swappiness("") != "10" {
			t.Errorf("%s: generation %d, rejected %+v, %s, staged %q, swappiness %s", when, st.Generation, st.Rejected, st.Health, st.Staged, m.swappiness(""))
		}
	}
	rejected("at once", st)
	m.ready("20") // nobody told the node
	rejected("after a sync", m.sync())
	rejected("after a look", m.apply())
	if st := m.sync(); st.Sync != spec.SyncBehind || !strings.Contains(st.SyncDetail, "rejected on this node") {
		t.Errorf("%s: %s", st.Sync, st.SyncDetail)
	}
	n := m.open()
	st, err := n.Retry(t.Context())
	if err := errors.Join(err, n.Close()); err != nil || st.Generation != 2 || st.Rejected != nil {
		t.Fatalf("told to try again: %+v, %v", st, err)
	}
	if m.judge(5); m.state().Current.Generation != 2 {
		t.Errorf("it holds now: %+v", m.state().Current)
	}
}

// A newer generation is tried, also with the same content.
func TestANewerGenerationIsTried(t *testing.T) {
	m := runningMachine(t)
	m.publishGated(2, layer("a"), "20", 0)
	m.sync()
	m.judge(5)
	m.publishGated(3, layer("a"), "20", 0)
	m.ready("20")
	if st := m.sync(); st.Generation != 3 || st.Rejected != nil {
		t.Errorf("%+v", st)
	}
	if m.judge(5); m.state().Current.Generation != 3 {
		t.Errorf("%+v", m.state().Current)
	}
	// What is signed again while it is judged is judged on.
	m.publishGated(4, layer("a"), "40", 9)
	m.sync()
	m.judge(1)
	m.publishGated(5, layer("a"), "40", 9)
	if st := m.sync(); st.Generation != 5 || len(st.Checks) != 1 || st.Checks[0].Failures == 0 || m.state().Current.Generation != 3 {
		t.Errorf("signed again: %+v, current %+v", st, m.state().Current)
	}
	m.ready("40")
	if m.judge(5); m.state().Current.Generation != 5 || m.state().Staged != nil {
		t.Errorf("%+v", m.state())
	}
	// What is newer takes the place of what is judged, and what is current stays what it was.
	m.publishGated(6, layer("a"), "60", 9)
	m.sync()
	m.publishGated(7, layer("a"), "70", 0)
	if st := m.sync(); st.Generation != 7 || m.state().Current.Generation != 5 {
		t.Errorf("%+v", st)
	}
	if st, _ := m.judge(5); st.Generation != 5 || m.swappiness("") != "40" {
		t.Errorf("generation %d, swappiness %s", st.Generation, m.swappiness(""))
	}
}

// Where the layer changed too, the whole pair comes back: by a reboot, whose loader
// passes over what was rejected.
func TestAFailedGateBringsThePreviousPairBack(t *testing.T) {
	for _, c := range []struct {
		core spec.Core
		back string
	}{{layer("b"), "generation 1 on layer " + layerNamed("a")}, {spec.Core{Layer: layerNamed("a"), KernelArgs: []string{"quiet"}}, "generation 1"}} {
		m := runningMachine(t)
		m.publishGated(2, c.core, "20", 0)
		m.boot()
		m.root2()
		if err := os.WriteFile(m.root+paths.RunDeadline, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		m.apply()
		if _, err := os.Stat(m.root + paths.RunDeadline); err == nil {
			t.Error("it came up, and its gates have the time that they need: the deadline would end them")
		}
		if m.state().Current.Generation != 1 {
			t.Fatalf("it is current before it has passed: %+v", m.state().Current)
		}
		_, reboots := m.judge(5)
		if s := m.state(); reboots != 1 || s.Current.Generation != 1 || s.Staged == nil || s.Staged.Failed == "" || s.Staged.Attempts != state.MaxAttempts {
			t.Fatalf("%d reboots, %+v", reboots, s.Staged)
		}
		events, _ := m.blackBox()
		if i := slices.IndexFunc(events, func(e spec.Event) bool { return e.Event == spec.EventGateFailed }); i < 0 || !strings.Contains(events[i].Did, "goes back to "+c.back+" (reboot)") {
			t.Errorf("the black box has %+v; want %s", events, c.back)
		}
		// An agent that was ended before systemd heard of it asks again.
		if _, reboots := m.judge(2); reboots != 1 {
			t.Errorf("%d reboots", reboots)
		}
		s := m.state() // the loader boots what is current; its own test is beside it
		if err := record.SaveBoot(m.root+paths.RunBoot, &record.Boot{Mode: "netboot", Node: "superhost", RootID: "root3", Disk: "/dev/vda1", Source: "cached", Sync: "behind", Generation: *s.Current}); err != nil {
			t.Fatal(err)
		}
		m.apply()
		if st := m.sync(); st.Generation != 1 || st.Rejected == nil || st.Sync != spec.SyncBehind || m.swappiness("") != "10" {
			t.Errorf("after the reboot: generation %d, rejected %+v, %s", st.Generation, st.Rejected, st.Sync)
		}
	}
}

// recorded changes the boot record.
func (m *machine) recorded(change func(*record.Boot)) {
	m.t.Helper()
	b, err := record.LoadBoot(m.root + paths.RunBoot)
	if err != nil {
		m.t.Fatal(err)
	}
	change(b)
	if err := record.SaveBoot(m.root+paths.RunBoot, b); err != nil {
		m.t.Fatal(err)
	}
}

// root2 makes the boot record one of another root.
func (m *machine) root2() { m.recorded(func(b *record.Boot) { b.RootID = "root2" }) }

// A boot of another overlay on the same layer goes back without another boot.
func TestABootOfTheSameLayerGoesBackLive(t *testing.T) {
	m := runningMachine(t)
	m.publishGated(2, layer("a"), "20", 0)
	m.boot()
	m.root2()
	m.apply()
	if st, reboots := m.judge(5); reboots != 0 || st.Generation != 1 || m.swappiness("") != "10" {
		t.Fatalf("%d reboots, generation %d, swappiness %s", reboots, st.Generation, m.swappiness(""))
	}
	for range 2 { // and stays there, whichever process starts next
		if st := m.apply(); st.Generation != 1 || m.swappiness("") != "10" {
			t.Errorf("generation %d, swappiness %s", st.Generation, m.swappiness(""))
		}
	}
	m.publish(3, layerNamed("a"), "30")
	if st := m.sync(); st.Generation != 3 || m.state().Current.Generation != 3 || m.swappiness("") != "30" {
		t.Errorf("generation %d, current %+v", st.Generation, m.state().Current)
	}
	if st := m.apply(); st.Generation != 3 {
		t.Errorf("generation %d", st.Generation)
	}
}

// Where nothing good is known, what failed stays, says so, and counts when it holds.
func TestNothingToGoBackTo(t *testing.T) {
	m := newMachine(t)
	m.enrolled()
	m.publishGated(1, layer("a"), "10", 0)
	m.boot()
	m.apply()
	st, reboots := m.judge(3)
	if st == nil || st.Generation != 1 || st.Health != spec.HealthBroken || reboots != 0 || m.swappiness("") != "10" || m.state().Current != nil {
		t.Fatalf("%d reboots, %+v", reboots, st)
	}
	m.ready("10")
	if st, _ := m.judge(5); st.Health != spec.HealthOK || m.state().Current == nil || m.state().Current.Generation != 1 {
		t.Errorf("it holds now: %s, %+v", st.Health, m.state().Current)
	}
}

// An attached host goes back, whatever has changed.
func TestAnAttachedHostGoesBack(t *testing.T) {
	m := newMachine(t)
	m.enrolled()
	if err := os.WriteFile(m.root+"/etc/machine-id", []byte("1234\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := traced(session.Options{Root: m.root, Kernel: &m.kernel, Name: "superhost", Say: t.Logf})
	sync := func() *spec.Status {
		t.Helper()
		n, err := Open(t.Context(), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		st, err := n.cycle.Sync(t.Context())
		if err := errors.Join(err, n.Close()); err != nil {
			t.Fatal(err)
		}
		return st
	}
	m.publishItems(1, "", spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}}})
	sync()
	m.publishGated(2, spec.Core{KernelArgs: []string{"quiet"}}, "20", 0)
	if st := sync(); st.Generation != 2 || m.swappiness("") != "20" {
		t.Fatalf("%+v", st)
	}
	for range 5 {
		wait, _, err := Judge(t.Context(), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if wait == 0 {
			break
		}
		m.kernel.Sleep(t.Context(), time.Second)
	}
	if st := sync(); st.Generation != 1 || st.Rejected == nil || m.swappiness("") != "10" {
		t.Errorf("generation %d, rejected %+v, swappiness %s", st.Generation, st.Rejected, m.swappiness(""))
	}
}

// A change that was begun and taken back is not tried again by itself; one that could
// not be begun is, and disturbs nobody.
func TestWhatWasTakenBackIsNotTriedAgain(t *testing.T) {
	m := runningMachine(t)
	count := filepath.Join(t.TempDir(), "count")
	m.publishItems(2, layerNamed("a"), spec.Items{Exec: []spec.Exec{{Name: "a", Data: "#!/bin/sh\necho x >>" + count + "\nexit 1\n", OnFailure: "rollback", Blocking: "foreground"}}})
	try := func() {
		n := m.open()
		_, err := n.cycle.Sync(t.Context())
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		t.Log(err)
	}
	for range 3 {
		try()
	}
	if text, err := os.ReadFile(count); err != nil || len(text) != 2 {
		t.Errorf("it ran as %q, %v; want once", text, err)
	}
	if s := m.state(); s.Staged == nil || !strings.Contains(s.Staged.Failed, "taken back") {
		t.Errorf("%+v", s.Staged)
	}
}

// gated marks the process that is killed.
const gated = "CAISSON_TEST_GATED"

// Killed at any moment, between the sync and the end of what follows from it, an agent
// that starts again ends where it would have ended.
func TestKilledWhileItIsJudged(t *testing.T) {
	require.Slow(t)
	if root := os.Getenv(gated); root != "" {
		beJudged(t, root)
		return
	}
	t.Parallel()
	for round := range 24 {
		m := runningMachine(t)
		m.publishGated(2, layer("a"), "20", 0)
		good := round%2 == 0
		if good {
			m.ready("20")
		}
		child := exec.Command(os.Args[0], "-test.run=^TestKilledWhileItIsJudged$", "-test.count=1")
		child.Env = append(os.Environ(), gated+"="+m.root)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(250)) * time.Millisecond)
		_ = child.Process.Kill() // it may have ended
		_ = child.Wait()         // how it ended does not matter
		m.apply()
		m.sync()
		if _, reboots := m.judge(6); reboots > 0 {
			t.Fatal("a reboot was asked for")
		}
		st, want := m.sync(), uint64(1)
		if good {
			want = 2
		}
		if st.Generation != want || m.state().Current.Generation != want || m.swappiness("") != strconv.Itoa(int(want)*10) || (st.Rejected != nil) == good || len(st.Checks) != 0 {
			t.Fatalf("round %d: generation %d, swappiness %s, %+v, checks %+v", round, st.Generation, m.swappiness(""), st.Rejected, st.Checks)
		}
	}
}

func beJudged(t *testing.T, root string) {
	o := traced(session.Options{Root: root, Say: t.Logf})
	n, err := Open(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.cycle.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if wait, _, err := Judge(t.Context(), o, nil); err != nil || wait == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// The loader passes over what was rejected here.
func TestTheTrackerKeepsWhatWasRejected(t *testing.T) {
	m := runningMachine(t)
	m.publishGated(2, layer("b"), "20", 0)
	folder, err := state.Open(m.root + paths.State)
	if err != nil {
		t.Fatal(err)
	}
	f := track.Tracker{Source: m.Registry.Source(), Bootstrap: *m.bootstrap(), Identity: trust.Identity{Node: "superhost"}, Folder: folder, Say: t.Logf}
	found, err := f.Sync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := m.state()
	s.Reject(found.Generation, "because", time.Now())
	if err := folder.Save(s); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if found, err = f.Sync(t.Context()); err != nil || found.Generation.Failed != "because" || found.Generation.Attempts != state.MaxAttempts {
			t.Errorf("%+v, %v", found, err)
		}
	}
}

// A watched check degrades a node whose change has passed, and undoes nothing.
func TestAWatchedCheckDegrades(t *testing.T) {
	m := runningMachine(t)
	m.Overlay(spec.Overlay{Core: layer("a"), Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}}},
		Gates: &spec.Gates{Checks: []spec.HealthCheck{{Name: "ready", File: "/ready20", Timeout: 1, Interval: 1, Watch: true}, {Name: "once", File: "/ready10", Timeout: 1, Interval: 1}}}}, sign.Predicate{Generation: 2})
	m.confirm(time.Now())
	m.ready("20")
	m.ready("10")
	m.sync()
	if st, _ := m.judge(3); st == nil || st.Generation != 2 || st.Health != spec.HealthOK || m.state().Current.Generation != 2 {
		t.Fatalf("%+v", st)
	}
	looks := func() *spec.Status {
		t.Helper()
		if err := os.RemoveAll(m.root + paths.RunWatched); err != nil { // it is due
			t.Fatal(err)
		}
		if _, reboots := m.judge(1); reboots != 0 {
			t.Fatal("it acts")
		}
		return m.apply()
	}
	if st := looks(); st.Health != spec.HealthOK || len(st.Checks) != 0 {
		t.Errorf("it holds: %s %s, %+v", st.Health, st.HealthDetail, st.Checks)
	}
	for _, name := range []string{"/ready20", "/ready10"} {
		if err := os.Remove(m.root + name); err != nil {
			t.Fatal(err)
		}
	}
	if st := looks(); st.Generation != 2 || st.Health != spec.HealthDegraded || st.HealthDetail != "check ready: the file is not there" || m.swappiness("") != "20" {
		t.Errorf("it does not hold: %s %q, swappiness %s", st.Health, st.HealthDetail, m.swappiness(""))
	}
	m.ready("20")
	if st := looks(); st.Health != spec.HealthOK {
		t.Errorf("it holds again: %s %s", st.Health, st.HealthDetail)
	}
}

// lookIn looks at the gates under a clock that is set to the year 2000, and on by some time,
// while the kernel's own goes on: the clock of a bubble is one that jumps.
func (m *machine) lookIn(later time.Duration) {
	m.t.Helper()
	o := traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: func(string, ...any) {}, Reboot: func(context.Context) error { return nil }})
	var err error
	synctest.Test(m.t, func(*testing.T) {
		time.Sleep(later)
		_, _, err = Judge(context.Background(), o, nil)
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// later acts under a clock that is on by some time.
func (m *machine) later(by time.Duration, act func() *spec.Status) (st *spec.Status) {
	m.t.Helper()
	then := time.Now().Add(by)
	synctest.Test(m.t, func(*testing.T) {
		time.Sleep(time.Until(then))
		st = act()
	})
	return st
}

// TestAClockThatJumpsWhileChecksSoak: a clock that is set, by fifty years and either way,
// passes no check before its time, keeps none from passing, and fails none.
func TestAClockThatJumpsWhileChecksSoak(t *testing.T) {
	for name, soak := range map[string]int64{"an hour": 3600, "a second": 1} {
		t.Run(name, func(t *testing.T) {
			m := runningMachine(t)
			m.Overlay(spec.Overlay{Core: layer("a"), Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}}},
				Gates: &spec.Gates{Checks: []spec.HealthCheck{{Name: "ready", File: "/ready20", Timeout: 1, Interval: 1, Soak: soak}}}}, sign.Predicate{Generation: 2})
			m.confirm(time.Now())
			m.ready("20")
			m.sync()
			for n := range 3 {
				m.lookIn(time.Duration(n%2) * 50 * 365 * 24 * time.Hour)
				m.kernel.Sleep(t.Context(), 1100*time.Millisecond)
			}
			switch s := m.state(); {
			case s.Staged != nil && s.Staged.Failed != "":
				t.Errorf("it failed: %s", s.Staged.Failed)
			case (s.Current.Generation == 2) != (soak == 1):
				t.Errorf("generation %d is current after three seconds, with a soak of %d", s.Current.Generation, soak)
			}
			if st := m.apply(); st.Generation != 2 {
				t.Errorf("generation %d runs", st.Generation)
			}
		})
	}
}
