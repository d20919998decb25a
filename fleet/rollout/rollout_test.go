// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/prune"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/spec"
)

const threeWaves = "{waves: [{hosts: [n00000]}, {percent: 25}], soak: 5m, deadline: 30m, silence: 10m}"

func layout(t *testing.T) string { return "oci:" + t.TempDir() + "/out" }

func TestAGoodRollout(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	plan, err := f.start("2")
	must(t, err)
	if len(plan.Waves) != 3 || len(plan.Waves[0].Nodes) != 1 || len(plan.Waves[1].Nodes) != 3 || len(plan.Waves[2].Nodes) != 8 {
		t.Fatalf("waves: %+v", plan.Waves)
	}
	f.tick(time.Minute)
	f.want(map[string]int{"1": 12}) // a start publishes nothing
	if _, _, err := f.driver().Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.tick(time.Minute)
	f.want(map[string]int{"1": 11, "2": 1})
	for range 3 { // it soaks
		if moved, d, err := f.driver().Step(t.Context()); moved || err != nil || !strings.Contains(d.Reason, "soaking") {
			t.Fatalf("while it soaks: %v, %+v, %v", moved, d, err)
		}
		f.tick(time.Minute)
	}
	if err := f.run(); !errors.Is(err, ErrEnded) {
		t.Fatalf("ended with %v", err)
	}
	f.want(map[string]int{"2": 12})
	for _, n := range f.nodes {
		if n.taken != 2 {
			t.Errorf("node %s took something %d times", n.name, n.taken)
		}
	}
	if r := f.row(); r.Phase != spec.RolloutDone || len(r.Waves) != 3 {
		t.Errorf("row: %+v", r)
	}
}

// A wave with a sick node halts the rollout, and goes back; the waves before it stay.
func TestASickWaveGoesBack(t *testing.T) {
	for undo, want := range map[string]map[string]int{"wave": {"1": 11, "2": 1}, "all": {"1": 12}, "none": {"1": 8, "2": 4}} {
		t.Run(undo, func(t *testing.T) {
			f := newFleet(t, layout(t), 12, strings.Replace(threeWaves, "}]", "}], undo: "+undo, 1))
			f.nodes["n00002"].sick = "2"
			_, err := f.start("2")
			must(t, err)
			err = f.run()
			if !errors.Is(err, ErrHalted) || !strings.Contains(err.Error(), "n00002 (sysctl vm.swappiness: invalid argument)") {
				t.Fatalf("ended with %v", err)
			}
			f.want(want)
			f.nodes["n00002"].sick = ""
			f.do(Undo)
			f.tick(time.Minute)
			f.want(map[string]int{"1": 12})
			for _, n := range f.nodes {
				if n.taken > 3 {
					t.Errorf("node %s took something %d times", n.name, n.taken)
				}
			}
		})
	}
}

// Nodes that say nothing, are held, or fail below the limit do not stop the others,
// and are named.
func TestWhoIsLeftOut(t *testing.T) {
	f := newFleet(t, layout(t), 12, strings.Replace(threeWaves, "}]", "}], halt: {count: 2}", 1))
	f.nodes["n00001"].dumb = true
	f.nodes["n00004"].sick = "2"
	f.p.Now = f.now
	_, err := hold.Freeze(t.Context(), &f.p, hold.Order{Nodes: []string{"n00005"}, By: publish.By{Author: "eve", Reason: "a disk is on its way"}})
	must(t, err)
	f.tick(20 * time.Minute)
	_, err = f.start("2")
	must(t, err)
	f.leaves("2 of 12 nodes left out: n00001 (silent: ")
	r := f.row()
	if got := r.Waves[1].LeftOut["n00001"]; !strings.HasPrefix(got, "silent: its last report is of ") {
		t.Errorf("n00001 is left out because %q", got)
	}
	if got := r.Waves[2].LeftOut["n00005"]; got != "held: freeze, a disk is on its way" {
		t.Errorf("n00005 is left out because %q", got)
	}
	if got := r.Waves[2].Failed["n00004"]; got != "sysctl vm.swappiness: invalid argument" {
		t.Errorf("n00004 failed because %q", got)
	}
	f.want(map[string]int{"1": 2, "2": 10})
}

// A wave whose nodes all say nothing is waited for: nobody would have tried what the
// next one gets. One whose nodes are all held is passed over.
func TestASilentWaveIsWaitedFor(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	f.nodes["n00000"].dumb = true
	f.tick(20 * time.Minute)
	_, err := f.start("2")
	must(t, err)
	for range 30 {
		moved, d, err := f.driver().Step(t.Context())
		if moved || err != nil || !strings.HasPrefix(d.Reason, "wave 1: none of its nodes reports: n00000 (silent: ") {
			t.Fatalf("moved %v, %q, %v", moved, d.Reason, err)
		}
		f.tick(time.Minute)
	}
	f.want(map[string]int{"1": 12})
	f.p.Now = f.now
	_, err = hold.Freeze(t.Context(), &f.p, hold.Order{Nodes: []string{"n00000"}, By: publish.By{Author: "eve", Reason: "it is gone"}})
	must(t, err)
	f.leaves("1 of 12 nodes left out: n00000 (held: freeze, it is gone)")
	f.want(map[string]int{"1": 1, "2": 11})
}

// Silence after the wave counts, at once while it soaks and else at the deadline.
func TestSilenceAfterAWave(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	f.nodes["n00001"].silent = func(v string) bool { return v == "2" }
	_, err := f.start("2")
	must(t, err)
	begun := f.now
	if err := f.run(); !errors.Is(err, ErrHalted) || !strings.Contains(err.Error(), "n00001 (silent since 20") {
		t.Fatalf("ended with %v", err)
	}
	if took := f.now.Sub(begun); took < 30*time.Minute || took > 60*time.Minute {
		t.Errorf("it took %s", took)
	}
	f.want(map[string]int{"1": 11, "2": 1})
}

// A node whose change waits for its window is waited for.
func TestAWindowIsWaitedFor(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	f.nodes["n00001"].waits = "window night"
	_, err := f.start("2")
	must(t, err)
	f.steps(300)
	_, d, err := f.driver().Step(t.Context())
	if err != nil || !strings.Contains(d.Reason, "n00001 waits for window night") {
		t.Fatalf("after five hours: %+v, %v", d, err)
	}
	f.nodes["n00001"].waits = ""
	if err := f.run(); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
	f.want(map[string]int{"2": 12})
}

func TestOperatorVerbs(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	_, err := f.start("2")
	must(t, err)
	if _, err := f.start("3"); err == nil || !strings.Contains(err.Error(), "rollout roll is running already") {
		t.Errorf("a second start: %v", err)
	}
	if _, err := f.p.Publish(t.Context(), f.policy(), f.compile(), publish.Options{}); err == nil || !strings.Contains(err.Error(), "is part of rollout roll, which is under way") {
		t.Errorf("a publish beside it: %v", err)
	}
	f.value = "2"
	_, _, err = f.driver().Step(t.Context())
	must(t, err)
	f.tick(time.Minute)
	f.do(Pause)
	f.tick(3 * time.Hour)
	if _, _, err := f.driver().Step(t.Context()); err == nil || !strings.Contains(err.Error(), "is paused: because") {
		t.Errorf("while it is paused: %v", err)
	}
	f.do(Resume)
	if err := f.run(); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
	f.want(map[string]int{"2": 12})
	// A later publish is not undone with it.
	f.value = "5"
	f.publish()
	f.tick(time.Minute)
	f.do(Undo)
	f.tick(time.Minute)
	f.want(map[string]int{"5": 12})
	if _, err := f.start("5"); err == nil || !strings.Contains(err.Error(), "would change nothing") {
		t.Errorf("a rollout of nothing: %v", err)
	}
	_, err = f.start("6")
	must(t, err)
	f.value = "7"
	if _, _, err := f.driver().Step(t.Context()); err == nil || !strings.Contains(err.Error(), "the site has changed") {
		t.Errorf("with another site: %v", err)
	}
	f.do(Abort)
	f.publish()
	f.tick(time.Minute)
	f.want(map[string]int{"7": 12})
}

// What a rollout goes back to stays when old generations are removed.
func TestPruneKeepsTheWayBack(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	_, err := f.start("2")
	must(t, err)
	if err := f.run(); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
	_, err = f.start("3")
	must(t, err)
	back := f.row().Waves
	for range 4 {
		if _, _, err := f.driver().Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.tick(6 * time.Minute)
	}
	f.p.Now = f.now
	policy := f.policy()
	f.p.Trust = &policy
	pruned, err := prune.Run(t.Context(), &f.p.Reader, f.p.Alone, prune.Keep{Versions: 1, Generations: 1}, false)
	must(t, err)
	kept := 0
	for _, g := range pruned.Generations {
		if g.Keep {
			kept++
		}
	}
	if kept != 2 || len(pruned.Generations) < 6 || back != nil {
		t.Errorf("kept %d of %d generations", kept, len(pruned.Generations))
	}
	f.do(Undo)
	f.tick(time.Minute)
	f.want(map[string]int{"2": 12})
}
