// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/spec"
)

// retire ends a node while a rollout is under way.
func (f *fleet) retire(name string) {
	f.t.Helper()
	f.p.Now = f.now
	policy := f.policy()
	f.p.Trust = &policy
	_, err := f.p.Retire(f.t.Context(), []string{name}, publish.By{Author: "eve", Reason: "it burned"})
	must(f.t, err)
	delete(f.nodes, name)
	f.names = without(f.names, name)
}

func without(names []string, name string) (rest []string) {
	for _, n := range names {
		if n != name {
			rest = append(rest, n)
		}
	}
	return rest
}

// A node that was retired before its wave does not come back with it, and one that was
// retired after its wave began is not waited for.
func TestRetiredDuringARollout(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	_, err := f.start("2")
	must(t, err)
	d := f.driver()
	d.nodes = map[string]publish.Node{} // the site as it was
	for _, n := range f.compile() {
		d.nodes[n.Name] = n
	}
	f.retire("n00009") // of the third wave
	for range 3000 {
		moved, what, err := d.Step(t.Context())
		if errors.Is(err, ErrEnded) {
			break
		}
		must(t, err)
		if moved && what.Act == Begin && what.Wave == 1 {
			f.retire("n00002")
		}
		if !moved {
			f.tick(time.Minute)
		}
	}
	r := f.row()
	if r.Phase != spec.RolloutDone || r.Waves[2].LeftOut["n00009"] == "" || r.Waves[1].LeftOut["n00002"] == "" || len(r.Waves[1].Failed) > 0 {
		t.Errorf("row: %+v", r)
	}
	f.want(map[string]int{"2": 10})
	fleet, err := f.p.Read(t.Context(), f.policy())
	must(t, err)
	for _, name := range []string{"n00002", "n00009"} {
		if _, there, err := fleet.Row(t.Context(), name); there || err != nil {
			t.Errorf("node %s is published again: %v", name, err)
		}
	}
}

// Others go back without a node that was retired.
func TestGoingBackWithoutTheRetired(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	f.nodes["n00001"].sick = "2"
	_, err := f.start("2")
	must(t, err)
	d := f.driver()
	for range 100 {
		moved, what, err := d.Step(t.Context())
		if errors.Is(err, ErrHalted) {
			break
		}
		must(t, err)
		if moved && what.Act == Begin && what.Wave == 1 {
			f.retire("n00002")
		}
		if !moved {
			f.tick(time.Minute)
		}
	}
	f.tick(time.Minute)
	if r := f.row(); r.Phase != spec.RolloutHalted {
		t.Fatalf("row: %+v", r)
	}
	f.want(map[string]int{"1": 10, "2": 1})
	f.retire("n00000")
	f.do(Undo)
	f.want(map[string]int{"1": 10})
}

// A hold whose time is over keeps a node neither out of its wave nor from the way back.
func TestAHoldThatIsOver(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	hold := func(name string, d time.Duration) {
		f.p.Now = f.now
		_, err := hold.Freeze(t.Context(), &f.p, hold.Order{Nodes: []string{name}, Until: f.now.Add(d), By: publish.By{Author: "eve", Reason: "a look"}})
		must(t, err)
	}
	hold("n00000", time.Hour)
	f.tick(2 * time.Hour)
	_, err := f.start("2")
	must(t, err)
	_, _, err = f.driver().Step(t.Context())
	must(t, err)
	f.tick(time.Minute)
	f.want(map[string]int{"1": 11, "2": 1})
	hold("n00000", time.Minute)
	f.tick(2 * time.Minute)
	f.do(Undo)
	f.tick(time.Minute)
	f.want(map[string]int{"1": 12})
}

// A node that waits for its window and then says nothing any more has failed.
func TestSilenceWhileAWindowIsWaitedFor(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	f.nodes["n00001"].waits = "window night"
	_, err := f.start("2")
	must(t, err)
	f.steps(120)
	f.nodes["n00001"].dumb = true
	if err := f.run(); !errors.Is(err, ErrHalted) || !strings.Contains(err.Error(), "n00001 (silent since 20") {
		t.Fatalf("ended with %v", err)
	}
}
