// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// Two of each of three racks, and four of all.
const twoARack = "{strategy: {maxUnavailable: 2, per: rack, overall: 4}, soak: 5m, deadline: 30m, silence: 10m}"

// As many move at once as the budget allows, in every rack; the next one follows when one is
// proved.
func TestABudget(t *testing.T) {
	f := newFleet(t, layout(t), 12, twoARack)
	plan, err := f.start("2")
	must(t, err)
	if b := plan.Budget; len(plan.Waves) != 1 || b == nil || b.Each != 2 || b.Overall != 4 || b.Nodes["n00004"] != "r1" {
		t.Fatalf("plan: %+v", plan)
	}
	f.steps(1)
	if r := f.row(); len(r.Waves) != 1 || len(r.Waves[0].Moving) != 4 {
		t.Fatalf("after one step: %+v", r)
	}
	f.tick(time.Minute)
	f.want(map[string]int{"1": 8, "2": 4})
	_, d, err := f.driver().Step(t.Context())
	if err != nil || !strings.Contains(d.Reason, "not proved yet: n00000, n00001, n00002 and 1 more; no room for n00004: ") {
		t.Errorf("%+v, %v", d, err)
	}
	f.nodes["n00001"].waits = "window night" // it had taken it, and takes nothing more
	must(t, f.finish())
	f.want(map[string]int{"2": 12})
	if r := f.row(); r.Phase != spec.RolloutDone || len(r.Waves[0].Moving) != 0 {
		t.Errorf("row: %+v", r)
	}
}

// Who is silent, in trouble, not proved, or disturbed by an operation with a slot counts, moved or not.
func TestABudgetCounts(t *testing.T) {
	for name, make := range map[string]func(f *fleet){
		"a silent node":       func(f *fleet) { f.nodes["n00003"].dumb = true; f.tick(20 * time.Minute) },
		"a node in trouble":   func(f *fleet) { f.nodes["n00003"].sick = "1"; f.tick(time.Minute) },
		"a node that soaks":   func(f *fleet) { f.nodes["n00003"].judges = true; f.tick(time.Minute) },
		"a node with a slot":  func(f *fleet) { f.slots = map[string]string{"n00003": "slot of rack.r0"} },
		"a node of a rollout": func(f *fleet) { f.slots = map[string]string{"n00003": "rollout other"} },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, layout(t), 12, strings.Replace(twoARack, "maxUnavailable: 2", "maxUnavailable: 1", 1))
			make(f)
			f.tick(time.Minute)
			_, err := f.start("2")
			must(t, err)
			f.steps(2)
			moved := f.row().Waves[0].Moving
			_, itself := moved["n00003"]
			delete(moved, "n00003") // it is unavailable anyway: to move it costs nothing
			if len(moved) != 2 || moved["n00001"] == 0 || moved["n00002"] == 0 || itself == strings.Contains(name, "silent") {
				t.Errorf("moving: %v, itself %v", moved, itself)
			}
		})
	}
}

// A node that takes a slot after the driver looked is seen before anything moves; the step goes on
// when the slot is free.
func TestASlotMeanwhile(t *testing.T) {
	f := newFleet(t, layout(t), 6, strings.Replace(twoARack, "maxUnavailable: 2", "maxUnavailable: 1", 1))
	_, err := f.start("2")
	must(t, err)
	d, looks := f.driver(), 0
	d.Slots = func(context.Context) (map[string]string, error) {
		if looks++; looks < 3 { // the look before the lock, and the one within
			return nil, nil
		}
		return map[string]string{"n00003": "slot of rack.r0"}, nil
	}
	_, _, err = d.Step(t.Context())
	if err == nil || !strings.Contains(err.Error(), "something else was disturbed meanwhile; no room for n00000: rack r0: 1 unavailable, 1 may be: n00003 (slot of rack.r0)") {
		t.Fatalf("%d looks: %v", looks, err)
	}
	f.tick(time.Minute)
	f.want(map[string]int{"1": 6})
	f.slots = map[string]string{"n00003": "slot of rack.r0"}
	f.steps(3)
	f.want(map[string]int{"1": 3, "2": 3}) // n00003 among them: it is unavailable anyway
	f.slots = nil
	must(t, f.finish())
	f.want(map[string]int{"2": 6})
	for _, n := range f.nodes {
		if n.taken != 2 {
			t.Errorf("node %s took something %d times", n.name, n.taken)
		}
	}
}

// order has the terms of waves: the next begins when all of the one before are proved.
func TestAnOrderWithinABudget(t *testing.T) {
	f := newFleet(t, layout(t), 12, "{strategy: {overall: 50%, order: [{hosts: [n00007]}, {each: rack}]}, soak: 5m, deadline: 30m, silence: 10m}")
	plan, err := f.start("2")
	must(t, err)
	if len(plan.Waves) != 4 || plan.Budget.Overall != 6 {
		t.Fatalf("plan: %+v", plan)
	}
	f.steps(4)
	f.want(map[string]int{"1": 11, "2": 1})
	f.reach(2)
	must(t, f.finish())
	f.want(map[string]int{"2": 12})
}

// A halt takes what is not proved back at once, and the rest by the budget; an operator's undo
// does the same.
func TestABudgetOnTheWayBack(t *testing.T) {
	for _, undo := range []string{"wave", "operator"} {
		t.Run(undo, func(t *testing.T) {
			f := newFleet(t, layout(t), 12, twoARack)
			if undo == "wave" {
				f.nodes["n00011"].sick = "2"
			}
			_, err := f.start("2")
			must(t, err)
			if undo == "wave" {
				f.untilPhase(spec.RolloutHalted)
			} else {
				must(t, f.finish())
				f.do(Undo)
			}
			most := 0
			for range 100 {
				was := f.values()["2"]
				moved, _, err := f.driver().Step(t.Context())
				f.tick(time.Minute)
				most = max(most, was-f.values()["2"])
				if err != nil && !moved {
					break
				}
			}
			if most == 0 || most > 4 {
				t.Errorf("%d went back at once", most)
			}
			f.want(map[string]int{"1": 12})
			for _, n := range f.nodes {
				if n.taken > 3 {
					t.Errorf("node %s took something %d times", n.name, n.taken)
				}
			}
		})
	}
}

// A node that is not well any more after it was proved has to prove itself again, and counts
// until then; one that stays so halts the rollout.
func TestProvedAndNotAnyMore(t *testing.T) {
	f := newFleet(t, layout(t), 12, twoARack)
	_, err := f.start("2")
	must(t, err)
	f.steps(10)
	if _, moving := f.row().Waves[0].Moving["n00000"]; moving || f.nodes["n00000"].value != "2" {
		t.Fatalf("not proved: %+v", f.row())
	}
	f.nodes["n00000"].sick = "2"
	f.tick(time.Minute)
	f.steps(2)
	if _, moving := f.row().Waves[0].Moving["n00000"]; !moving {
		t.Fatalf("it does not count: %+v", f.row())
	}
	if err := f.run(); !errors.Is(err, ErrHalted) || !strings.Contains(err.Error(), "n00000 (sysctl") {
		t.Errorf("ended with %v", err)
	}
}

// A node that is not proved and may be well waits for room on its way back, where others have used
// the budget up by themselves; until it is back it counts as before.
func TestNotProvedOnTheWayBack(t *testing.T) {
	f := newFleet(t, layout(t), 12, "{strategy: {maxUnavailable: 2, per: rack, overall: 4}, soak: 1h, deadline: 2h, silence: 10m}")
	_, err := f.start("2")
	must(t, err)
	f.steps(2)
	for _, name := range f.names[4:9] {
		f.nodes[name].dumb = true
	}
	f.nodes["n00000"].broken = true
	for range 12 {
		f.tick(time.Minute)
	}
	f.untilPhase(spec.RolloutHalted)
	f.tick(time.Minute)
	f.want(map[string]int{"1": 9, "2": 3})
	if busy := InFlight(map[string]spec.Rollout{"roll": f.row()}, "other"); len(busy) != 3 || busy["n00001"] == "" {
		t.Errorf("in flight: %v of %+v", busy, f.row())
	}
	_, d, err := f.driver().Step(t.Context())
	if err != nil || d.Act != Wait || !strings.Contains(d.Reason, "going back; no room for n00001: ") {
		t.Errorf("%+v, %v", d, err)
	}
	for _, n := range f.nodes {
		n.dumb, n.broken = false, false
	}
	f.tick(time.Minute)
	if err := f.run(); !errors.Is(err, ErrHalted) {
		t.Errorf("it ended with %v", err)
	}
	f.want(map[string]int{"1": 12})
}

// More may move than a budget has room for, where they were in trouble before. They are well by now
// and not proved when the rollout halts: it waits for them, and goes back by the budget.
func TestManyNotProvedOnTheWayBack(t *testing.T) {
	f := newFleet(t, layout(t), 12, "{strategy: {maxUnavailable: 2, per: rack, overall: 6}, soak: 30m, deadline: 2h, silence: 10m, undo: all}")
	for i := 0; i < 12; i += 3 { // rack r0
		f.nodes[f.names[i]].sick = "1"
	}
	f.tick(time.Minute)
	_, err := f.start("2")
	must(t, err)
	f.steps(2)
	if moved := f.row().Waves[0].Moving; len(moved) != 6 || moved["n00009"] == 0 {
		t.Fatalf("moving: %v", moved)
	}
	for i := 0; i < 12; i += 3 { // rack r0
		f.nodes[f.names[i]].sick = ""
	}
	f.nodes["n00001"].broken = true
	f.tick(time.Minute)
	f.untilPhase(spec.RolloutHalted)
	f.tick(time.Minute)
	_, d, err := f.driver().Step(t.Context())
	if err != nil || d.Act != Wait || !strings.Contains(d.Reason, "going back; no room for n00000: rack r0: 4 unavailable, 2 may be: n00000 (it is not proved yet)") {
		t.Errorf("%+v, %v", d, err)
	}
	for range 200 {
		was := f.values()["2"]
		_, _, err := f.driver().Step(t.Context())
		f.tick(time.Minute)
		if went := was - f.values()["2"]; went > 2 {
			t.Errorf("%d went back at once", went)
		}
		if err != nil {
			break
		}
	}
	f.want(map[string]int{"1": 12})
}

// Nodes that judge what they went back to count on the way back: the next ones follow when those
// are proved.
func TestTheWayBackWaitsForChecks(t *testing.T) {
	f := newFleet(t, layout(t), 6, strings.Replace(twoARack, "maxUnavailable: 2", "maxUnavailable: 1", 1))
	_, err := f.start("2")
	must(t, err)
	must(t, f.finish())
	f.do(Undo)
	_, _, err = f.driver().Step(t.Context())
	must(t, err)
	f.tick(time.Minute)
	for _, n := range f.nodes {
		n.judges = n.value == "1"
	}
	f.tick(time.Minute)
	was := f.values()["1"]
	_, d, err := f.driver().Step(t.Context())
	if err != nil || was == 0 || was == 6 || d.Act != Wait || !strings.Contains(d.Reason, "going back; no room for ") || !strings.Contains(d.Reason, "(it is not proved yet)") {
		t.Errorf("%d are back: %s %q, %v", was, d.Act, d.Reason, err)
	}
	for _, n := range f.nodes {
		n.judges = false
	}
	f.tick(time.Minute)
	for range 10 {
		_, _, _ = f.driver().Step(t.Context()) // it ends with an error
		f.tick(time.Minute)
	}
	f.want(map[string]int{"1": 6})
}

// A publish of others that was cut does not keep a rollout from beginning.
func TestABudgetBeginsBehindACut(t *testing.T) {
	l := newLine(t, registrytest.WithReferrers(t))
	f := newFleet(t, l.at+"/metal", 12, twoARack)
	_, err := f.start("2")
	must(t, err)
	f.p.Now = f.now
	ctx, kill := context.WithCancel(t.Context())
	reserved := false
	l.meets = func(r *http.Request) {
		switch {
		case r.Method != http.MethodPut:
		case reserved:
			kill()
		case strings.HasSuffix(r.URL.Path, "/manifests/index"):
			reserved = true
		}
	}
	if _, err := hold.Freeze(ctx, &f.p, hold.Order{Nodes: []string{"n00003"}, By: publish.By{Reason: "a disk"}}); err == nil {
		t.Fatal("it was not cut")
	}
	l.meets = nil
	f.now = f.now.Add(6 * time.Hour) // until the reservation of the dead is not honoured any more
	l.ahead = time.Until(f.now)
	f.tick(0)
	f.reach(1)
	must(t, f.finish())
	f.want(map[string]int{"2": 12})
}

// Whom the service had no time to hear since it began may be well: on the way back they go by the
// budget, too.
func TestBackBehindAServiceThatWasAway(t *testing.T) {
	f := newFleet(t, layout(t), 12, twoARack)
	_, err := f.start("2")
	must(t, err)
	must(t, f.finish())
	f.do(Undo)
	f.now = f.now.Add(time.Hour) // nobody heard them meanwhile
	f.hears = f.now
	_, d, err := f.driver().Step(t.Context())
	if err != nil || d.Act != Wait || !strings.Contains(d.Reason, "going back; no room for n00000: rack r0: 4 unavailable, 2 may be: n00000 (silent: ") {
		t.Errorf("behind it: %+v, %v", d, err)
	}
	for range 100 {
		was := f.values()["2"]
		_, _, err := f.driver().Step(t.Context())
		f.tick(time.Minute)
		if went := was - f.values()["2"]; went > 4 {
			t.Errorf("%d went back at once", went)
		}
		if err != nil {
			break
		}
	}
	f.want(map[string]int{"1": 12})
}

// Who failed, and is well by now, does not go back at once by an operator's undo.
func TestUndoOfFailedNodes(t *testing.T) {
	f := newFleet(t, layout(t), 12, strings.Replace(twoARack, "}, soak", "}, halt: {count: 10}, soak", 1))
	for _, name := range f.names[:6] {
		f.nodes[name].sick = "2"
	}
	_, err := f.start("2")
	must(t, err)
	for range 1000 {
		failed := 0
		for _, w := range f.row().Waves {
			failed += len(w.Failed)
		}
		if failed > 4 {
			break
		}
		for _, n := range f.nodes { // what failed makes room
			if f.isFailed(n.name) {
				n.sick = ""
			}
		}
		f.steps(1)
	}
	for _, n := range f.nodes {
		n.sick = ""
	}
	f.tick(time.Minute)
	was := f.values()["2"]
	f.do(Undo)
	f.tick(time.Minute)
	if went := was - f.values()["2"]; went > 4 {
		t.Errorf("%d of %d went back at once", went, was)
	}
}

func (f *fleet) isFailed(name string) bool {
	for _, w := range f.row().Waves {
		if w.Failed[name] != "" {
			return true
		}
	}
	return false
}

// Silent nodes of a wave are left out at its end; late ones move when they report.
func TestSilentWithinABudget(t *testing.T) {
	f := newFleet(t, layout(t), 12, "{strategy: {overall: 3, order: [{count: 4}]}, soak: 5m, deadline: 30m, silence: 10m}")
	f.nodes["n00001"].dumb = true
	f.tick(20 * time.Minute)
	_, err := f.start("2")
	must(t, err)
	f.reach(2)
	f.nodes["n00001"].dumb = false
	f.nodes["n00009"].dumb = true
	f.leaves("1 of 12 nodes left out: n00009 (silent: ")
	f.want(map[string]int{"1": 1, "2": 11})
}

// One that is held stays as it is, and what was retired is not waited for.
func TestHeldWithinABudget(t *testing.T) {
	f := newFleet(t, layout(t), 12, twoARack)
	_, err := f.start("2")
	must(t, err)
	f.steps(1)
	f.p.Now = f.now
	_, err = hold.Freeze(t.Context(), &f.p, hold.Order{Nodes: []string{"n00011"}, By: publish.By{Author: "eve", Reason: "a disk"}})
	must(t, err)
	f.leaves("1 of 12 nodes left out: n00011 (held: freeze, a disk)")
	f.want(map[string]int{"1": 1, "2": 11})
}

// untilPhase steps until the rollout is in a phase.
func (f *fleet) untilPhase(phase string) {
	f.t.Helper()
	for range 1000 {
		if f.row().Phase == phase {
			return
		}
		f.steps(1)
	}
	f.t.Fatalf("it is never %s: %+v", phase, f.row())
}

// Cut at requests of all kinds of steps with a budget: each goes on where it was, and nobody moves
// more than once each way.
func TestCutWithABudget(t *testing.T) {
	require.Slow(t)
	server := registrytest.WithReferrers(t)
	for i, s := range scenes {
		if s.name != "a wave" && s.name != "a wave, and an undo" && s.name != "a halt" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			l := newLine(t, server)
			f := newFleet(t, l.at+fmt.Sprintf("/budget%d", i), 4, "{strategy: {overall: 2}, soak: 1m, deadline: 30m, silence: 30h}")
			if n := f.cuts(l, s, 5+i%3, 7); n < 2 {
				t.Errorf("%d cuts: it is shorter than it was", n)
			}
		})
	}
}

// A wave whose nodes fall silent before they move does not end by the few that moved: the next one
// waits until half of them have, or an operator retires those that are gone.
func TestAWaveThatFallsSilent(t *testing.T) {
	f := newFleet(t, layout(t), 12, "{strategy: {overall: 8, order: [{count: 6}]}, soak: 5m, deadline: 30m, silence: 10m}")
	_, err := f.start("2")
	must(t, err)
	f.slots = map[string]string{} // so that two nodes move
	for _, name := range f.names[6:12] {
		f.slots[name] = "slot of others"
	}
	f.steps(1)
	var silent []string
	for _, name := range f.names[:6] {
		if _, moves := f.row().Waves[0].Moving[name]; !moves {
			silent = append(silent, name)
			f.nodes[name].dumb = true
		}
	}
	f.tick(12 * time.Minute)
	f.slots = nil
	f.steps(40)
	if r := f.row(); len(silent) != 4 || len(r.Waves) != 1 || r.Waves[0].Done != 0 {
		t.Fatalf("silent %v: %+v", silent, r)
	}
	for _, name := range silent[:2] {
		f.nodes[name].dumb = false
	}
	f.leaves("2 of 12 nodes left out")
	f.want(map[string]int{"1": 2, "2": 10})
}

// TestANodeThatWaitsForAPerson is said to wait, where it uses a budget up.
func TestANodeThatWaitsForAPerson(t *testing.T) {
	now := time.Now()
	l := newLook(&spec.RolloutPlan{Rule: spec.RolloutRule{Silence: 60}, Budget: &spec.RolloutBudget{Nodes: map[string]string{"n1": "r0"}}}, spec.Rollout{}, Known{
		Rows:    index.Rows{"n1": {Overlay: "sha256:1"}},
		Reports: map[string]report.Standing{"n1": {At: now, Overlay: "sha256:1", Well: now.Add(1), Waiting: "confirm: generation 7"}}}, now)
	out, assumed := l.unavailable()
	if want := "it is not proved yet, and waits for confirm: generation 7"; out["n1"] != want || !assumed["n1"] {
		t.Errorf("%v, assumed %v", out, assumed)
	}
}
