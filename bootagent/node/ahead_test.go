// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// publishAhead signs an overlay of one layer for others, too, with a check of its own
// where retries is not negative.
func (m *machine) publishAhead(generation uint64, core spec.Core, swappiness string, retries int64, runsOn ...string) {
	m.t.Helper()
	o := spec.Overlay{Core: core, Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: swappiness}}}}
	if retries >= 0 {
		o.Gates = &spec.Gates{Checks: []spec.HealthCheck{{Name: "ready", File: "/ready" + swappiness, Timeout: 1, Interval: 1, Retries: retries}}}
	}
	p := sign.Predicate{Generation: generation}
	for _, name := range runsOn {
		p.RunsOn = append(p.RunsOn, layerNamed(name))
	}
	m.Overlay(o, p)
	m.confirm(time.Now())
}

// entered makes the boot record one of a generation, as a loader leaves it that the
// registry led there, or that fell back on it.
func (m *machine) entered(root string, g state.Generation) {
	m.t.Helper()
	b := &record.Boot{Mode: "netboot", Node: "superhost", RootID: root, Disk: "/dev/vda1", Source: "cached", Sync: "behind", Generation: g}
	if err := errors.Join(record.SaveBoot(m.root+paths.RunBoot, b), os.RemoveAll(m.root+paths.RunGates)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) rebootReason() string {
	text, _ := os.ReadFile(m.root + paths.RebootReasons) // without the file there is no reason
	return strings.TrimSpace(string(text))
}

// A layer that waits for a reboot holds nothing else back.
func TestAWaitingLayerHoldsNothingBack(t *testing.T) {
	m := runningMachine(t)
	a, b := layerNamed("a"), layerNamed("b")
	waits := func(when string, st *spec.Status, generation uint64, swappiness string) {
		t.Helper()
		if st.Generation != generation || st.Layer != a || st.Staged != st.Overlay || st.Sync != spec.SyncBehind || st.Activity != spec.ActivityWaiting("reboot") ||
			st.Health != spec.HealthOK || m.swappiness("") != swappiness {
			t.Errorf("%s: generation %d on %s, staged %q, %s: %s, %s, %s, %+v, swappiness %s", when, st.Generation, st.Layer, st.Staged, st.Sync, st.SyncDetail, st.Activity, st.Health, st.Drift, m.swappiness(""))
		}
		s := m.state()
		if s.Current.Generation != 1 || s.Current.Layer != a || s.Ahead == nil || s.Ahead.Generation != generation || s.Ahead.Layer != a || s.Staged == nil || s.Staged.Layer != b {
			t.Errorf("%s: current %+v, ahead %+v, staged %+v", when, s.Current, s.Ahead, s.Staged)
		}
		if why := m.rebootReason(); !strings.HasPrefix(why, fmt.Sprintf("caisson: generation %d: reboot: its layer is not staged: ", generation)) {
			t.Errorf("%s: a reboot is asked for by %q", when, why)
		}
	}
	m.publishAhead(2, layer("b"), "20", -1, "x", "a")
	waits("a user was added, and a parameter changed", m.sync(), 2, "20")
	waits("nothing new", m.sync(), 2, "20")
	waits("a look", m.apply(), 2, "20")
	m.publishAhead(3, layer("b"), "30", -1, "a")
	waits("the next parameter", m.sync(), 3, "30")
	m.publishAhead(4, layer("b"), "30", -1, "a")
	waits("the same again", m.sync(), 4, "30")

	// Somebody freezes the node: it keeps what it has, on the layer that it has.
	m.told(func(n *Node) error { return n.Freeze("", 0) })
	if st := m.sync(); st.Generation != 4 || st.Layer != a || m.swappiness("") != "30" {
		t.Errorf("frozen: generation %d on %s, swappiness %s", st.Generation, st.Layer, m.swappiness(""))
	}
	m.told(func(n *Node) error { return n.Forward("") })

	// The reboot ends it.
	m.boot()
	m.root2()
	if st := m.apply(); st.Generation != 4 || st.Layer != b || st.Staged != "" || m.rebootReason() != "" {
		t.Errorf("after the reboot: generation %d on %s, staged %q", st.Generation, st.Layer, st.Staged)
	}
	if s := m.state(); s.Current.Generation != 4 || s.Current.Layer != b || s.Ahead != nil || s.Staged != nil {
		t.Errorf("after the reboot: %+v", s)
	}
	if st := m.sync(); st.Sync != spec.SyncCurrent || st.Activity != spec.ActivityIdle {
		t.Errorf("after the reboot: %s, %s", st.Sync, st.Activity)
	}
}

// A layer that was rejected is not one that waits for a reboot: none leads to it.
func TestARejectedLayerDoesNotWait(t *testing.T) {
	m := runningMachine(t)
	m.publishAhead(2, layer("b"), "20", -1, "a")
	m.sync()
	folder, err := state.Open(m.root + paths.State)
	if err != nil {
		t.Fatal(err)
	}
	s := m.state()
	if s.Reject(*s.Staged, "no card", time.Now()); s.Staged.Failed == "" {
		t.Fatalf("%+v", s.Staged)
	}
	if err := folder.Save(s); err != nil {
		t.Fatal(err)
	}
	st := m.sync()
	if st.Generation != 2 || st.Layer != layerNamed("a") || m.swappiness("") != "20" || st.Sync != spec.SyncBehind ||
		st.SyncDetail != "on its own layer generation 2 is rejected on this node: no card; --retry tries it again" || st.Activity != spec.ActivityIdle || m.rebootReason() != "" {
		t.Errorf("generation %d on %s, %s: %s, %s, reboot %q", st.Generation, st.Layer, st.Sync, st.SyncDetail, st.Activity, m.rebootReason())
	}
}

// What is not signed for the stacked layer, and what only a boot can change beside the
// layer, waits with it.
func TestWhatWaitsWithTheLayer(t *testing.T) {
	for name, publish := range map[string]func(*machine){
		"not signed":  func(m *machine) { m.publishAhead(2, layer("b"), "20", -1) },
		"for another": func(m *machine) { m.publishAhead(2, layer("b"), "20", -1, "c") },
		"arguments": func(m *machine) {
			m.publishAhead(2, spec.Core{Layer: layerNamed("b"), KernelArgs: []string{"quiet"}}, "20", -1, "a")
		},
	} {
		m := runningMachine(t)
		publish(m)
		for range 2 {
			if st := m.sync(); st.Generation != 1 || st.Staged == "" || st.Staged == st.Overlay || m.swappiness("") != "10" || m.state().Ahead != nil {
				t.Errorf("%s: generation %d, staged %q, swappiness %s", name, st.Generation, st.Staged, m.swappiness(""))
			}
		}
	}
}

// The plan of a node says what acts at once, and what waits.
func TestPlanOfALayerThatWaits(t *testing.T) {
	m := runningMachine(t)
	m.publishAhead(2, layer("b"), "20", -1, "a")
	n, err := Read(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf}), m.bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close() // the test is over
	drift, err := n.Plan(t.Context())
	if err != nil || len(drift) != 2 || drift[0].Item != "sysctl" || drift[0].To != "20" || drift[1].Action != spec.ActionDefer || !strings.Contains(drift[1].Reason, "another layer") {
		t.Errorf("%+v, %v", drift, err)
	}
}

// What fails on a layer that is not its own is taken back, and is tried on its own.
func TestFailedAhead(t *testing.T) {
	m := runningMachine(t)
	m.publishAhead(2, layer("b"), "20", -1, "a")
	m.sync()
	m.publishAhead(3, layer("b"), "30", 0, "a")
	if st := m.sync(); st.Generation != 3 || m.swappiness("") != "30" || st.Activity != spec.ActivitySoaking || m.state().Ahead.Generation != 2 {
		t.Fatalf("it is judged: generation %d, swappiness %s, %s", st.Generation, m.swappiness(""), st.Activity)
	}
	if st, reboots := m.judge(5); reboots != 0 || st.Generation != 2 || m.swappiness("") != "20" {
		t.Fatalf("%d reboots, generation %d, swappiness %s", reboots, st.Generation, m.swappiness(""))
	}
	for range 2 { // and it is not tried here again
		if st := m.sync(); st.Generation != 2 || m.swappiness("") != "20" || !strings.Contains(st.SyncDetail, "on the one that runs it failed") || st.Rejected != nil || st.Staged == "" {
			t.Errorf("generation %d, swappiness %s, %s, rejected %+v", st.Generation, m.swappiness(""), st.SyncDetail, st.Rejected)
		}
	}
	if s := m.state(); s.Staged.Generation != 3 || s.Staged.Failed != "" || s.Staged.Attempts != 0 || s.Ahead.Generation != 2 {
		t.Fatalf("staged %+v, ahead %+v", s.Staged, s.Ahead)
	}
	m.boot()
	m.root2()
	m.apply()
	m.ready("30")
	if m.judge(5); m.state().Current.Generation != 3 || m.state().Current.Layer != layerNamed("b") || m.state().Ahead != nil {
		t.Errorf("on its own layer: %+v", m.state().Current)
	}
}

// Where both changed and a gate fails, the whole pair before comes back, and then the
// newest overlay that is signed for its layer.
func TestThePairBeforeThenTheNewestForItsLayer(t *testing.T) {
	for name, ahead := range map[string]bool{"it was in effect before": true, "it comes after": false} {
		t.Run(name, func(t *testing.T) {
			m := runningMachine(t)
			m.publishAhead(2, layer("b"), "20", 1, "a")
			if ahead {
				m.ready("20")
				m.sync()
				m.judge(5)
				if err := os.Remove(m.root + "/ready20"); err != nil {
					t.Fatal(err)
				}
			}
			m.boot()
			m.root2()
			m.apply()
			_, reboots := m.judge(6)
			s := m.state()
			if reboots != 1 || s.Staged == nil || s.Staged.Failed == "" || s.Current.Generation != 1 || (s.Ahead != nil) != ahead {
				t.Fatalf("%d reboots, staged %+v, current %+v, ahead %+v", reboots, s.Staged, s.Current, s.Ahead)
			}
			m.entered("root3", *s.Best()) // as the loader does, which has its own test
			m.ready("20")
			m.apply()
			st := m.sync()
			if !ahead {
				st, _ = m.judge(6)
			}
			if st == nil || st.Generation != 2 || st.Layer != layerNamed("a") || m.swappiness("") != "20" || st.Rejected == nil || st.Rejected.Generation != 2 || st.Health != spec.HealthDegraded {
				t.Fatalf("%+v, swappiness %s", st, m.swappiness(""))
			}
			if s := m.state(); s.Ahead == nil || s.Ahead.Layer != layerNamed("a") || s.Staged.Failed == "" {
				t.Errorf("ahead %+v, staged %+v", s.Ahead, s.Staged)
			}
			if why := m.rebootReason(); why != "" {
				t.Errorf("nothing waits for a reboot: %s", why)
			}
		})
	}
}

// An operator goes back on the node to what ran before, on the layer that runs.
func TestRollbackFromAhead(t *testing.T) {
	m := runningMachine(t)
	m.publishAhead(2, layer("b"), "20", -1, "a")
	m.sync()
	if st, err := m.rollback(); err != nil || st.Generation != 1 || m.swappiness("") != "10" || m.state().Ahead != nil {
		t.Fatalf("%+v, %v, swappiness %s", st, err, m.swappiness(""))
	}
	if st := m.sync(); st.Generation != 1 || m.swappiness("") != "10" {
		t.Errorf("held: generation %d, swappiness %s", st.Generation, m.swappiness(""))
	}
}

// A later signature that leaves the stacked layer out ends it.
func TestNotSignedForThisLayerAnyMore(t *testing.T) {
	m := runningMachine(t)
	m.publishAhead(2, layer("b"), "20", -1, "a")
	m.sync()
	m.publishAhead(3, layer("b"), "20", -1)
	m.sync()
	if st := m.apply(); st.Generation != 1 || m.swappiness("") != "10" || st.Staged == "" {
		t.Errorf("generation %d, swappiness %s", st.Generation, m.swappiness(""))
	}
}

// Killed anywhere, and started over where the power went with it, a node ends on a pair
// that was signed, and on the newest where the registry says so.
func TestAheadThatIsKilled(t *testing.T) {
	require.Slow(t)
	t.Parallel()
	steps := 0
	for at := 1; ; at++ {
		r := newRemote(t)
		r.publish(1, layerNamed("a"), "10")
		r.boot()
		r.must(r.applyOnce())
		r.publishAhead(2, layer("b"), "20", -1, "a")
		survived := r.kill("sync", at, 0)
		when := fmt.Sprintf("killed at step %d", at)
		if at%2 == 0 { // the power, too: the loader falls back
			r.entered("root2", *r.state().Best())
			r.swappiness("60")
		}
		st := r.must(r.applyOnce())
		if want := map[uint64]string{1: "10", 2: "20"}[st.Generation]; st.Layer != layerNamed("a") || r.swappiness("") != want {
			t.Fatalf("%s: generation %d on %s, swappiness %s", when, st.Generation, st.Layer, r.swappiness(""))
		}
		if st := r.must(r.syncOnce()); st.Generation != 2 || r.swappiness("") != "20" || st.Layer != layerNamed("a") {
			t.Fatalf("%s: then generation %d, swappiness %s", when, st.Generation, r.swappiness(""))
		}
		if s := r.state(); s.Current.Generation != 1 || s.Ahead == nil || s.Staged == nil || s.Staged.Layer != layerNamed("b") {
			t.Fatalf("%s: %+v", when, s)
		}
		if survived {
			break
		}
		steps = at
	}
	if t.Logf("killed at %d steps", steps); steps < 5 {
		t.Errorf("%d steps: it tests too little", steps)
	}
}

// Whatever is published, however it fails, and whenever the machine is started over: what
// runs is a pair that was signed, and as its overlay says. At the end a good generation of
// a good layer is current.
func TestEveryPairThatRunsWasSigned(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	m := runningMachine(t)
	type pair struct{ overlay, layer string }
	signed, values := map[pair]bool{}, map[string]string{}
	generation, boots := uint64(1), 0
	names := []string{"a", "b", "c", "d"}
	value := func(n uint64) string { return fmt.Sprint(10 * n) }
	publish := func(gated, good bool) {
		generation++
		retries, runsOn := int64(-1), []string(nil)
		if gated {
			retries = 0
		}
		for _, name := range names {
			if r.IntN(2) == 0 {
				runsOn = append(runsOn, name)
			}
		}
		if gated && good {
			m.ready(value(generation))
		}
		own := names[r.IntN(len(names))]
		m.publishAhead(generation, layer(own), value(generation), retries, runsOn...)
		c, err := trust.Overlay(t.Context(), m.Registry.Source(), []string{"superhost"}, "")
		if err != nil {
			t.Fatal(err)
		}
		digest := oci.Digest(c.Document)
		values[digest] = value(generation)
		for _, name := range append(runsOn, own) {
			signed[pair{digest, layerNamed(name)}] = true
		}
	}
	first := m.state().Current
	signed[pair{first.Overlay, first.Layer}], values[first.Overlay] = true, "10"
	runs := func(when string) {
		t.Helper()
		st := m.apply()
		if !signed[pair{st.Overlay, st.Layer}] || m.swappiness("") != values[st.Overlay] {
			t.Fatalf("%s: generation %d on %s, swappiness %s, want %s; signed %v\n%+v", when, st.Generation, st.Layer, m.swappiness(""), values[st.Overlay], signed[pair{st.Overlay, st.Layer}], m.state())
		}
	}
	// boot does what the loader does: what is staged, unless it failed or was begun too often.
	boot := func() {
		boots++
		folder, err := state.Open(m.root + paths.State)
		if err != nil {
			t.Fatal(err)
		}
		s := m.state()
		g := *s.Best()
		if s.Staged != nil && s.Staged.Failed == "" && s.Staged.Attempts < state.MaxAttempts && r.IntN(3) > 0 {
			s.Staged.Attempts++
			if err := folder.Save(s); err != nil {
				t.Fatal(err)
			}
			if g = *s.Staged; r.IntN(3) == 0 {
				return // it does not come up
			}
		}
		m.entered(fmt.Sprint("root", boots), g)
		m.swappiness("60")
	}
	for range 60 {
		switch r.IntN(4) {
		case 0:
			publish(r.IntN(2) == 0, r.IntN(2) == 0)
		case 1:
			boot()
			runs("after a boot")
		case 2:
			if _, reboots := m.judge(2); reboots > 0 {
				m.entered(fmt.Sprint("root", boots), *m.state().Best())
				m.swappiness("60")
			}
			runs("after a look at the gates")
		default:
			m.sync()
			runs("after a sync")
		}
	}
	publish(false, true)
	for range 2 {
		m.sync()
		s := m.state()
		if s.Staged == nil {
			break
		}
		m.entered("last", *s.Staged)
		m.swappiness("60")
		m.apply()
	}
	if s := m.state(); s.Current.Generation != generation || s.Staged != nil || s.Ahead != nil || m.swappiness("") != value(generation) {
		t.Errorf("current %+v, staged %+v, ahead %+v", s.Current, s.Staged, s.Ahead)
	}
}
