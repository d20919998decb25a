// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/operate"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// ran is a machine that ran generations 1 to 3 one after the other, each with its own
// swappiness.
func ran(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	m.publish(2, layerNamed("a"), "20")
	m.sync()
	m.publish(3, layerNamed("a"), "30")
	m.sync()
	return m
}

func (m *machine) say(act func(*Node) (*spec.Status, error)) (*spec.Status, error) {
	m.t.Helper()
	n, err := Open(m.t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, By: "ann/test", Say: m.t.Logf}), m.bootstrap())
	if err != nil {
		m.t.Fatal(err)
	}
	defer n.Close() // the test looks at files
	return act(n)
}

func (m *machine) rollback() (*spec.Status, error) {
	m.t.Helper()
	return m.say(func(n *Node) (*spec.Status, error) { return n.Rollback(m.t.Context(), "it hangs", 0) })
}

func (m *machine) pin(generation uint64) (*spec.Status, error) {
	m.t.Helper()
	return m.say(func(n *Node) (*spec.Status, error) { return n.Pin(m.t.Context(), generation, "", 0) })
}

// Where the disk is full there is room for an operator's word, too.
func TestGoingBackOnAFullDisk(t *testing.T) {
	for name, act := range map[string]func(m *machine) (*spec.Status, error){
		"rollback": (*machine).rollback,
		"pin":      func(m *machine) (*spec.Status, error) { return m.pin(1) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			fill := m.fullDisk()
			m.enrolled()
			m.publish(1, layerNamed("a"), "10")
			m.boot()
			m.apply()
			m.publish(2, layerNamed("a"), "20")
			m.sync()
			fill()
			if st, err := act(m); err != nil || st.Generation != 1 || m.swappiness("") != "10" {
				t.Errorf("%v; %+v, swappiness %s", err, st, m.swappiness(""))
			}
			if s := m.state(); s.Current.Generation != 1 || s.Hold == nil {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A hold that is left over on a node which follows ends nothing, and keeps nothing busy.
func TestAHoldOfANodeThatFollows(t *testing.T) {
	m := ran(t)
	folder, err := state.Open(m.root + paths.State)
	if err != nil {
		t.Fatal(err)
	}
	s := m.state()
	s.Hold = &spec.Hold{Kind: spec.HoldFreeze, Since: 1, Until: 2}
	if err := folder.Save(s); err != nil {
		t.Fatal(err)
	}
	if st := m.apply(); st.Generation != 3 || st.Tracking != spec.Following {
		t.Errorf("%+v", st)
	}
}

func (m *machine) told(act func(*Node) error) {
	m.t.Helper()
	if _, err := m.say(func(n *Node) (*spec.Status, error) { return nil, act(n) }); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) is(when string, st *spec.Status, generation uint64, tracking spec.Tracking, swappiness string) {
	m.t.Helper()
	if st == nil || st.Generation != generation || st.Tracking != tracking || m.swappiness("") != swappiness || st.Staged != "" {
		m.t.Errorf("%s: %+v, swappiness %s; want generation %d, %s, %s", when, st, m.swappiness(""), generation, tracking, swappiness)
	}
}

func TestRollback(t *testing.T) {
	m := ran(t)
	for _, step := range []struct {
		generation uint64
		swappiness string
	}{{2, "20"}, {1, "10"}} {
		st, err := m.rollback()
		if err != nil {
			t.Fatal(err)
		}
		m.is("rolled back", st, step.generation, spec.Held, step.swappiness)
		if st.TrackingDetail != "this node is rolled back by ann/test: it hangs" || time.Since(st.TrackingSince) > time.Minute {
			t.Errorf("%q since %s", st.TrackingDetail, st.TrackingSince)
		}
		for range 2 { // whatever is published
			st := m.sync()
			m.is("asked", st, step.generation, spec.Held, step.swappiness)
			if st.Sync != spec.SyncBehind || !strings.Contains(st.SyncDetail, "generation 3 is there, but this node is rolled back") {
				t.Errorf("%s: %s", st.Sync, st.SyncDetail)
			}
			m.swappiness("77")
			m.is("drifted", m.apply(), step.generation, spec.Held, step.swappiness)
		}
	}
	var kept operate.NotKept
	if _, err := m.rollback(); !errors.As(err, &kept) || !strings.Contains(kept.Hint(), "it keeps 3, 2, 1") {
		t.Errorf("nothing is older: %v", err)
	}
	// Back and forth among what is kept, and forward.
	st, err := m.pin(3)
	if err != nil {
		t.Fatal(err)
	}
	m.is("pinned", st, 3, spec.Held, "30")
	if _, err := m.pin(4); !errors.As(err, &kept) {
		t.Errorf("what is not kept: %v", err)
	}
	if st, err = m.pin(2); err != nil {
		t.Fatal(err)
	}
	m.is("pinned again", st, 2, spec.Held, "20")
	m.told(func(n *Node) error { return n.Forward("") })
	m.is("forward", m.apply(), 2, spec.Following, "20")
	m.is("and asked", m.sync(), 3, spec.Following, "30")
}

// A boot of a node that was rolled back is one of what it was rolled back to.
func TestRollbackOutlivesABoot(t *testing.T) {
	m := ran(t)
	if _, err := m.rollback(); err != nil {
		t.Fatal(err)
	}
	folder := state.View(m.root + paths.State)
	f := track.Tracker{Source: m.Registry.Source(), Bootstrap: *m.bootstrap(), Identity: fixtureIdentity(), Folder: folder, Say: t.Logf, CoreOnly: true}
	found, err := f.Sync(t.Context())
	if err != nil || !found.Held {
		t.Fatalf("%+v, %v", found, err)
	}
	good, err := f.Good(false)
	if err != nil || good[0].Generation.Generation != 2 {
		t.Errorf("%+v, %v", good, err)
	}
}

func TestRollbackWithoutNetwork(t *testing.T) {
	m := ran(t)
	n, err := Open(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf, Fetch: func(b spec.Bootstrap, way track.Way) (oci.Source, error) {
		b.Registry = "oci:" + t.TempDir() // nothing is there
		return nil, nil
	}}), m.bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close() // the test looks at files
	st, err := n.Rollback(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	m.is("offline", st, 2, spec.Held, "20")
}

// What needs another root waits for it; the layers and overlays stay until then.
func TestRollbackToAnotherLayer(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	m.publish(2, layerNamed("b"), "20")
	m.sync()
	m.boot()
	if err := os.Remove(m.root + paths.RunStatus); err != nil {
		t.Fatal(err)
	}
	m.apply()
	st, err := m.rollback()
	if err != nil || st.Generation != 2 || st.Sync != spec.SyncBehind || st.SyncDetail != "waits for a reboot: another layer" || st.Staged == "" || m.swappiness("") != "20" {
		t.Fatalf("%+v, %v", st, err)
	}
	s, err := state.View(m.root + paths.State).Load()
	if err != nil || s.Current.Generation != 1 || s.Previous == nil || s.Previous.Generation != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	m.told(func(n *Node) error { return n.Forward("") }) // somebody thinks better of it
	m.is("forward", m.sync(), 2, spec.Following, "20")
}

// A change that cannot be made leaves the node as it was, and following.
func TestRollbackThatFails(t *testing.T) {
	m := newMachine(t)
	m.publishItems(1, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}, {Key: "vm/gone", Value: "1"}}})
	if err := os.WriteFile(m.root+"/proc/sys/vm/gone", []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m.boot()
	m.apply()
	m.publish(2, layerNamed("a"), "20")
	m.sync()
	if err := os.Remove(m.root + "/proc/sys/vm/gone"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(m.root+"/proc/sys/vm/gone", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := m.rollback(); err == nil {
		t.Fatal("it was gone back to")
	}
	if s, err := state.View(m.root + paths.State).Load(); err != nil || s.Current.Generation != 2 || s.Tracking != spec.Following || s.Hold != nil {
		t.Errorf("%+v, %v", s, err)
	}
	m.is("afterwards", m.sync(), 2, spec.Following, "20")
}

// A decision that was saved is gone on with, wherever the agent was when it ended.
func TestRollbackThatWasCut(t *testing.T) {
	m := ran(t)
	folder := state.View(m.root + paths.State)
	s, err := folder.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range s.Kept() {
		if g.Generation == 2 {
			s.Return(g)
		}
	}
	s.Keep(spec.Hold{Kind: spec.HoldRollback, Since: time.Now().Unix()})
	if err := folder.Save(s); err != nil {
		t.Fatal(err)
	}
	m.is("cut", m.apply(), 2, spec.Held, "20")
}

// Nobody on a node can keep what the fleet lets nobody run.
func TestAHoldIsNotStrongerThanTheFleet(t *testing.T) {
	overlay := func(m *machine, generation uint64) string {
		s, err := state.View(m.root + paths.State).Load()
		if err != nil {
			m.t.Fatal(err)
		}
		for _, g := range s.Kept() {
			if g.Generation == generation {
				return g.Overlay
			}
		}
		m.t.Fatalf("generation %d is not kept", generation)
		return ""
	}
	t.Run("rejected", func(t *testing.T) {
		m := ran(t)
		if _, err := m.rollback(); err != nil {
			t.Fatal(err)
		}
		m.Current(spec.Fleet{Reject: []string{overlay(m, 2)}}, time.Now())
		m.is("what is rejected is left", m.sync(), 3, spec.Held, "30")
		if _, err := m.pin(2); refusal.Of(err) != refusal.Rejected {
			t.Errorf("and not gone back to: %v", err)
		}
		m.is("it stays", m.apply(), 3, spec.Held, "30")
	})
	t.Run("frozen", func(t *testing.T) {
		m := ran(t)
		m.told(func(n *Node) error { return n.Freeze("", 0) })
		bad := overlay(m, 3)
		m.Overlay(spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Items: items2("40", "1")}, sign.Predicate{Generation: 4})
		m.Current(spec.Fleet{Reject: []string{bad}}, time.Now())
		if st := m.sync(); st.Generation != 4 {
			t.Errorf("%+v", st)
		}
	})
	t.Run("too old", func(t *testing.T) {
		m := ran(t)
		if _, err := m.rollback(); err != nil {
			t.Fatal(err)
		}
		m.Current(spec.Fleet{Minimum: spec.Floor{Generation: 3}}, time.Now())
		m.is("a newer generation is published", m.sync(), 2, spec.Held, "20")
		m.Overlay(spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "40"}}}},
			sign.Predicate{Epoch: 1, Generation: 4}, m.Permit(1))
		m.Current(spec.Fleet{Minimum: spec.Floor{Epoch: 1}}, time.Now(), m.Permit(1))
		m.is("the epoch is raised", m.sync(), 4, spec.Held, "40")
		if _, err := m.pin(2); refusal.Of(err) != refusal.Epoch {
			t.Errorf("and not gone back to: %v", err)
		}
	})
}

// A hold ends by itself when its time is over.
func TestAHoldEnds(t *testing.T) {
	m := ran(t)
	if _, err := m.say(func(n *Node) (*spec.Status, error) { return n.Rollback(t.Context(), "", time.Hour) }); err != nil {
		t.Fatal(err)
	}
	st := m.sync()
	m.is("before", st, 2, spec.Held, "20")
	if left := time.Until(st.TrackingUntil); left < 50*time.Minute || left > time.Hour {
		t.Errorf("until %s", st.TrackingUntil)
	}
	m.is("after", m.later(time.Hour+time.Second, m.sync), 3, spec.Following, "30")
}

// What a local pause keeps from being done is done when it ends: drift, and what was
// published meanwhile.
func TestALocalPause(t *testing.T) {
	m := ran(t)
	m.told(func(n *Node) error { return n.Pause("a fan", 0) })
	m.swappiness("77")
	m.publish(4, layerNamed("a"), "40")
	for range 2 {
		for _, st := range []*spec.Status{m.sync(), m.apply()} {
			if st.Generation != 3 || m.swappiness("") != "77" || st.Pause == nil || st.PausedBy != "ann/test" || len(st.Drift) != 1 || st.Activity != spec.ActivityWaiting("resume") || st.ActivityDetail != "ann/test paused this node: a fan" {
				t.Errorf("%+v, swappiness %s", st, m.swappiness(""))
			}
		}
	}
	m.told((*Node).Resume)
	if st := m.apply(); st.Generation != 3 || st.Pause != nil || m.swappiness("") != "30" {
		t.Errorf("resumed: %+v", st)
	}
	if st := m.sync(); st.Generation != 4 || m.swappiness("") != "40" {
		t.Errorf("and asked: %+v", st)
	}
	m.told(func(n *Node) error { return n.Pause("", time.Hour) })
	m.swappiness("77")
	if m.apply(); m.swappiness("") != "77" {
		t.Error("a pause for an hour does not hold")
	}
	if m.later(time.Hour+time.Second, m.apply); m.swappiness("") != "40" {
		t.Error("its time is over")
	}
}

// Going back ends what waits for its operator.
func TestRollbackOfATrial(t *testing.T) {
	r := newRemote(t)
	r.up()
	r.publishConfirm(2, "a", "20", "1")
	r.must(r.syncOnce())
	st, err := r.do(func(n *Node) (*spec.Status, error) { return n.Rollback(t.Context(), "", 0) })
	if err != nil || st.Generation != 1 || st.Tracking != spec.Held || r.swappiness("") != "10" {
		t.Errorf("%+v, %v", st, err)
	}
	r.is("later", r.must(r.syncOnce()), 1, spec.Held, "10")
	if err := r.confirmNow(); err == nil {
		t.Error("it was confirmed")
	}
}
