// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/prune"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/spec"
)

// racks has a wave a rack, of four nodes each.
const racks = "{waves: [{each: rack}], soak: 5m, deadline: 30m, silence: 10m}"

func (f *fleet) rack(r int) (names []string) {
	for i := r; i < len(f.names); i += 3 {
		names = append(names, f.names[i])
	}
	return names
}

// The wave of a rack that was cut off begins with half of it, and not with the first node
// that comes back; the others come with the next wave, or before the rollout ends. One that
// never comes back is named at the end.
func TestARackThatComesBack(t *testing.T) {
	f := newFleet(t, layout(t), 12, racks)
	for _, r := range []int{0, 2} {
		for _, name := range f.rack(r) {
			f.nodes[name].dumb = true
		}
	}
	f.tick(20 * time.Minute)
	_, err := f.start("2")
	must(t, err)
	waits := func(what string) {
		t.Helper()
		for range 20 {
			moved, d, err := f.driver().Step(t.Context())
			if moved || err != nil || !strings.Contains(d.Reason, what) {
				t.Fatalf("moved %v, %q, %v; want %q", moved, d.Reason, err, what)
			}
			f.tick(time.Minute)
		}
	}
	waits("wave 1-r0: none of its nodes reports: n00000 (silent: ")
	f.nodes["n00000"].dumb = false
	f.tick(time.Minute)
	waits("wave 1-r0: 1 of its nodes report, it begins with 2; silent are n00003 (silent: ")
	f.want(map[string]int{"1": 12})
	f.nodes["n00003"].dumb = false
	f.tick(time.Minute)
	f.reach(1)
	f.tick(time.Minute)
	f.want(map[string]int{"1": 10, "2": 2})
	f.nodes["n00006"].dumb = false
	f.reach(2)
	f.tick(time.Minute)
	f.want(map[string]int{"1": 5, "2": 7}) // rack 1, and the one that came back
	if r := f.row(); r.Waves[0].LeftOut["n00006"] != "" || r.Waves[0].LeftOut["n00009"] == "" {
		t.Errorf("row: %+v", r)
	}
	for _, name := range f.rack(2) {
		f.nodes[name].dumb = name == "n00011"
	}
	f.reach(3)
	f.nodes["n00009"].dumb = false // in the last wave: it is waited for
	f.leaves("1 of 12 nodes left out: n00011 (silent: ")
	f.want(map[string]int{"1": 1, "2": 11})
	for _, n := range f.nodes {
		if n.taken > 2 {
			t.Errorf("node %s took something %d times", n.name, n.taken)
		}
	}
}

// A rollback or a freeze of everything during a rollout never ends as if all was done; waves
// that nobody is in write no generation.
func TestOvertaken(t *testing.T) {
	for verb, want := range map[string]string{"rollback": "none of its 12 nodes has what it brings: ", "freeze": "8 of 12 nodes left out: n00001 (held: freeze"} {
		for _, between := range []bool{true, false} {
			t.Run(fmt.Sprint(verb, between), func(t *testing.T) {
				f := newFleet(t, layout(t), 12, racks)
				f.value = "7" // what they had before is there to go back to
				f.publish()
				f.tick(time.Minute)
				_, err := f.start("2")
				must(t, err)
				f.reach(1)
				f.tick(time.Minute)
				for between && f.row().Waves[0].Done == 0 {
					f.steps(1)
				}
				f.p.Now = f.now
				h := hold.Order{All: true, By: publish.By{Author: "eve", Reason: "mounts fail"}}
				if verb == "rollback" {
					_, err = hold.Rollback(t.Context(), &f.p, h, "")
				} else {
					_, err = hold.Freeze(t.Context(), &f.p, h)
				}
				must(t, err)
				before := f.generation()
				f.tick(time.Minute)
				switch err := f.run(); {
				case verb == "freeze" && between:
					if !errors.Is(err, ErrLeftOut) || !strings.Contains(err.Error(), want) {
						t.Errorf("it ended with %v", err)
					}
				case !errors.Is(err, ErrHalted):
					t.Errorf("it ended with %v", err)
				case between && !strings.Contains(err.Error(), want):
					t.Errorf("it ended with %v", err)
				}
				if n := f.generation() - before; n > 2 {
					t.Errorf("its end took %d generations", n)
				}
			})
		}
	}
}

func (f *fleet) generation() uint64 {
	f.t.Helper()
	look := f.p
	look.Now = f.now
	fleet, err := look.Read(f.t.Context(), f.policy())
	must(f.t, err)
	return fleet.Floor().Generation
}

// A rollout that nobody can be in halts, and says so.
func TestNobodyCanBeIn(t *testing.T) {
	f := newFleet(t, layout(t), 12, racks)
	f.p.Now = f.now
	_, err := hold.Freeze(t.Context(), &f.p, hold.Order{All: true, By: publish.By{Author: "eve", Reason: "the night"}})
	must(t, err)
	_, err = f.start("2")
	must(t, err)
	if err := f.run(); !errors.Is(err, ErrHalted) || !strings.Contains(err.Error(), "none of its 12 nodes has what it brings: n00000 (held: freeze, the night)") {
		t.Errorf("it ended with %v", err)
	}
	f.do(Abort)
}

// What breaks counts at once, and in waves that are done until the rollout ends: the wave
// that failed goes back, and a resume begins with it.
func TestWavesThatAreDone(t *testing.T) {
	for name, sicken := range map[string]func(n *node){
		"broken": func(n *node) { n.broken = true },
		"sick":   func(n *node) { n.sick = "2" },
		"silent": func(n *node) { n.dumb = true },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, layout(t), 12, racks)
			_, err := f.start("2")
			must(t, err)
			f.reach(2)
			sicken(f.nodes["n00003"]) // of the first wave
			begun := f.now
			if err := f.run(); !errors.Is(err, ErrHalted) || !strings.Contains(err.Error(), "wave 1-r0: 1 of 4 nodes failed: n00003 (") {
				t.Fatalf("it ended with %v", err)
			}
			if took := f.now.Sub(begun); name == "broken" && took > 3*time.Minute || took > 35*time.Minute {
				t.Errorf("that took %s", took)
			}
			r := f.row()
			if r.Waves[0].Back == 0 || r.Waves[0].Failed["n00003"] == "" || r.Waves[1].Back != 0 {
				t.Errorf("row: %+v", r)
			}
			f.nodes["n00003"].broken, f.nodes["n00003"].sick, f.nodes["n00003"].dumb = false, "", false
			f.do(Resume)
			if r := f.row(); len(r.Waves) != 0 || r.Phase != spec.RolloutRunning {
				t.Errorf("after a resume: %+v", r)
			}
			f.tick(time.Minute)
			must(t, f.finish())
			f.want(map[string]int{"2": 12})
		})
	}
}

// A wave that soaks names whom it waits for.
func TestWhoSoaks(t *testing.T) {
	f := newFleet(t, layout(t), 12, racks)
	_, err := f.start("2")
	must(t, err)
	f.reach(1)
	f.tick(time.Minute)
	if _, d, err := f.driver().Step(t.Context()); err != nil || d.Reason != "wave 1-r0: soaking: n00000, n00003, n00006 and 1 more" {
		t.Errorf("%q, %v", d.Reason, err)
	}
}

// Steps that only tell how far a rollout is make no generation that somebody goes back to go.
func TestPruneCountsChanges(t *testing.T) {
	f := newFleet(t, layout(t), 12, racks)
	for _, value := range []string{"2", "3"} {
		f.value = value
		f.now = f.now.Add(time.Minute)
		f.publish()
	}
	f.tick(time.Minute)
	_, err := f.start("4")
	must(t, err)
	for range 6 {
		f.do(Pause)
		f.do(Resume)
	}
	f.do(Abort)
	f.p.Now = f.now
	policy := f.policy()
	f.p.Trust = &policy
	pruned, err := prune.Run(t.Context(), &f.p.Reader, f.p.Alone, prune.Keep{Versions: 1, Generations: 2}, false)
	must(t, err)
	var kept []uint64
	for _, g := range pruned.Generations {
		if g.Keep {
			kept = append(kept, g.Number)
		}
	}
	if n := len(kept); n == 0 || kept[n-1] != 2 || kept[n-2] != 3 || n < 14 {
		t.Errorf("kept are %v, want them back to generation 2", kept)
	}
}
