// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/analysis"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/spec"
)

// Racks one after the other, and two of each rack at once; compared with the nodes that have not moved.
const (
	rackByRack = "{waves: [{each: rack}], soak: 5m, deadline: 30m, silence: 10m, analysis: [{query: latency, label: node, against: rest, worse: '> 1.1 ×', for: 2m, atLeast: 4}]}"
	byRackToo  = "{strategy: {maxUnavailable: 2, per: rack}, soak: 5m, deadline: 30m, silence: 10m, analysis: [{query: latency, label: node, of: group, against: rest, worse: '> 1.1 ×', for: 2m, atLeast: 2}]}"
)

// measures has a Prometheus say the same of each node at all moments, or nothing where that is
// below 0.
func (f *fleet) measures(value func(n *node) float64) {
	f.measure = func(context.Context, spec.Analysis, time.Time) (m analysis.Measured, err error) {
		for i := range m.At {
			m.At[i] = map[string]float64{}
			for name, n := range f.nodes {
				if v := value(n); !(v < 0) {
					m.At[i][name] = v
				}
			}
		}
		return m, nil
	}
}

// rackOne is slower by a fifth with the new value.
func rackOne(n *node) float64 {
	if n.value == "2" && strings.Contains("n00001 n00004 n00007 n00010", n.name) {
		return 0.24
	}
	return 0.2
}

// A rack that is slower by a fifth halts the rollout with the numbers, in waves and in a strategy,
// and its nodes go back.
func TestARackThatIsWorse(t *testing.T) {
	f := newFleet(t, layout(t), 12, rackByRack)
	f.measures(rackOne)
	_, err := f.start("2")
	must(t, err)
	if err := f.run(); !errors.Is(err, ErrHalted) || !strings.Contains(err.Error(), `wave 1-r1: analysis "latency": the mean of 4 nodes is 0.24, that of 4 others is 0.2; worse is > 1.1 ×, for 2m0s`) {
		t.Fatalf("ended with %v", err)
	}
	f.want(map[string]int{"1": 8, "2": 4})
	for _, n := range f.nodes {
		if n.taken > 3 {
			t.Errorf("node %s took something %d times", n.name, n.taken)
		}
	}

	f = newFleet(t, layout(t), 12, byRackToo)
	f.measures(rackOne)
	_, err = f.start("2")
	must(t, err)
	if err := f.run(); !errors.Is(err, ErrHalted) || !strings.Contains(err.Error(), `wave 1: analysis "latency" of rack r1: the mean of 2 nodes is 0.24, that of 6 others is 0.2`) {
		t.Fatalf("ended with %v", err)
	}
	f.want(map[string]int{"1": 12})
}

// It halts as soon as it was worse for so long, however long the wave soaks.
func TestWorseBeforeTheSoakEnds(t *testing.T) {
	f := newFleet(t, layout(t), 12, strings.Replace(rackByRack, "soak: 5m", "soak: 1h", 1))
	f.measures(func(n *node) float64 { return map[string]float64{"1": 0.2, "2": 0.3}[n.value] })
	_, err := f.start("2")
	must(t, err)
	begun := f.now
	if err := f.run(); !errors.Is(err, ErrHalted) || f.now.Sub(begun) > 10*time.Minute {
		t.Errorf("ended after %s with %v", f.now.Sub(begun), err)
	}
}

// An unknown answer holds and never passes; once it is known, and well, the rollout goes on.
func TestWhatIsNotKnownHolds(t *testing.T) {
	for name, test := range map[string]struct {
		value func(n *node) float64
		says  string
	}{
		"NaN":          {func(*node) float64 { return math.NaN() }, "holds: node n00000 has the value NaN"},
		"nothing":      {func(*node) float64 { return -1 }, "have a value"},
		"too few":      {func(n *node) float64 { return map[bool]float64{true: -1}[n.name == "n00000" || n.name == "n00003"] }, "have a value"},
		"others' NaN":  {func(n *node) float64 { return map[string]float64{"1": math.NaN()}[n.value] }, "of the others node n0000"},
		"one is dead":  {func(n *node) float64 { return map[string]float64{"2": -1}[n.value] }, "have a value"},
		"unreachable":  {nil, "holds: connection refused"},
		"others' none": {func(n *node) float64 { return map[string]float64{"1": -1}[n.value] }, "of the others 0 of "},
	} {
		for _, rule := range []string{rackByRack, byRackToo} {
			t.Run(fmt.Sprintf("%s, %.10s", name, rule[1:]), func(t *testing.T) {
				f := newFleet(t, layout(t), 12, rule)
				if f.measures(test.value); test.value == nil {
					f.measure = func(context.Context, spec.Analysis, time.Time) (m analysis.Measured, err error) {
						return m, errors.New("connection refused")
					}
				}
				_, err := f.start("2")
				must(t, err)
				f.steps(60)
				_, d, err := f.driver().Step(t.Context())
				if err != nil || d.Act != Wait || !strings.Contains(d.Reason, test.says) {
					t.Errorf("%+v, %v", d, err)
				}
				if r := f.row(); len(r.Waves) != 1 || r.Waves[0].Done != 0 || f.values()["2"] > 6 {
					t.Errorf("%v of it: %+v", f.values(), r)
				}
				f.measures(func(*node) float64 { return 1 })
				must(t, f.finish())
				f.want(map[string]int{"2": 12})
			})
		}
	}
}

// A wave or a group that an analysis judges by the plan is held where too few of its nodes are left to
// be compared, whatever became of the rest.
func TestTooFewAreLeft(t *testing.T) {
	const rest = "soak: 5m, deadline: 15m, silence: 10m, halt: {count: 3}, analysis: [{query: latency, label: node, of: OF, against: rest, worse: '> 1.1 ×', for: 2m, atLeast: 4}]}"
	for name, rule := range map[string]string{
		"waves":    "{waves: [{count: 4}, {count: 4}], " + strings.Replace(rest, "OF", "wave", 1),
		"strategy": "{strategy: {overall: 2, order: [{count: 4}, {count: 4}]}, " + strings.Replace(rest, "OF", "wave", 1),
		"group":    "{strategy: {maxUnavailable: 4, per: rack, order: [{hosts: [n00000, n00003, n00006, n00009, n00001]}]}, " + strings.Replace(rest, "OF", "group", 1),
	} {
		for what, make := range map[string]func(f *fleet){
			"one fails":          func(f *fleet) { f.nodes["n00000"].sick = "2" },
			"one becomes silent": func(f *fleet) { f.nodes["n00000"].silent = func(value string) bool { return value == "2" } },
			"one is silent":      func(f *fleet) { f.nodes["n00000"].dumb = true; f.tick(20 * time.Minute) },
			"one is held":        func(f *fleet) { f.hold(f.verbs()["freeze"], "n00000") },
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				f := newFleet(t, layout(t), 12, rule)
				f.measures(func(*node) float64 { return 0.2 })
				_, err := f.start("2")
				must(t, err)
				make(f)
				f.steps(40)
				_, d, err := f.driver().Step(t.Context())
				if err != nil || d.Act != Wait || !strings.Contains(d.Reason, "3 of 3 nodes have a value, 4 must") {
					t.Errorf("%s %q, %v", d.Act, d.Reason, err)
				}
				if r := f.row(); len(r.Waves) != 1 || r.Waves[0].Done != 0 {
					t.Errorf("%v of it: %+v", f.values(), r)
				}
			})
		}
	}
}

// So is a wave where nodes of later waves were given the same meanwhile: nobody is left to compare with.
func TestNoOthersAreLeft(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	begun := now.Add(-time.Hour)
	plan := &spec.RolloutPlan{Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"a": "new"}}, {Name: "2", Nodes: map[string]string{"b": "new"}}},
		Rule: spec.RolloutRule{Soak: 600, Silence: 900, Analysis: []spec.Analysis{{Query: "latency", Against: spec.AgainstRest, Worse: "> 2 ×", For: 60, AtLeast: 1}}}}
	measured := analysis.Measured{}
	for i := range measured.At {
		measured.At[i] = map[string]float64{"a": 1, "b": 1}
	}
	for has, act := range map[string]Act{"old": Finish, "new": Wait} {
		known := Known{Rows: index.Rows{"a": {Overlay: "new"}, "b": {Overlay: has}}, Reports: map[string]report.Standing{"a": {At: now, Overlay: "new", Well: begun}},
			Measured: []analysis.Measured{measured}}
		row := spec.Rollout{Phase: spec.RolloutRunning, Waves: []spec.RolloutWave{{Begun: begun.Unix()}}}
		if d := Next(plan, row, known, now); d.Act != act || act == Wait && !strings.Contains(d.Reason, "of the others 0 of 0 nodes have a value, 1 must") {
			t.Errorf("b has the %s: %s %q", has, d.Act, d.Reason)
		}
	}
}

// Which waves are judged follows from the plan; where it is none, the rollout does not start.
func TestJudgedWaves(t *testing.T) {
	for rule, want := range map[string]string{
		rackByRack: "[1-r0 1-r1]",
		byRackToo:  "[1]",
		strings.Replace(rackByRack, "{each: rack}", "{count: 1}, {count: 4}", 1):                    "[2]",
		strings.Replace(rackByRack, "against: rest, worse: '> 1.1 ×'", "worse: '> 1'", 1):           "[1-r0 1-r1 1-r2]",
		strings.Replace(rackByRack, "atLeast: 4", "atLeast: 5", 1):                                  "the analysis \"latency\" judges no wave: none has 5 nodes and leaves as many that have not moved",
		strings.Replace(byRackToo, "of: group, against: rest, worse: '> 1.1 ×'", "worse: '> 1'", 1): "[1]",
		// All racks would have three nodes moved, and the rest would move at once.
		strings.Replace(byRackToo, "atLeast: 2", "atLeast: 4", 1):                                                "judges no wave: none has 4 nodes and leaves as many that have not moved",
		strings.NewReplacer("maxUnavailable: 2, per: rack", "overall: 11", "of: group, ", "").Replace(byRackToo): "judges no wave",
	} {
		f := newFleet(t, layout(t), 12, rule)
		plan, err := f.start("2")
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", rule, err)
			}
			continue
		}
		if got := fmt.Sprint(analysis.Waves(plan, plan.Rule.Analysis[0])); got != want {
			t.Errorf("%s: judges %s, want %s", rule, got, want)
		}
		f.measure = nil
		if _, _, err := f.driver().Step(t.Context()); err == nil || !strings.Contains(err.Error(), "has analyses, and no Prometheus is named") || !final(err) {
			t.Errorf("without a Prometheus: %v", err)
		}
	}
}

// A Prometheus that lies lets no sick node pass, and no wave come before the one before it is well
// by its reports; what it says of strangers counts for nothing.
func TestStolenPrometheus(t *testing.T) {
	f := newFleet(t, layout(t), 12, rackByRack)
	f.measures(func(*node) float64 { return 0 })
	f.nodes["n00001"].sick = "2"
	_, err := f.start("2")
	must(t, err)
	f.steps(2)
	f.want(map[string]int{"1": 8, "2": 4})
	if err := f.run(); !errors.Is(err, ErrHalted) || !strings.Contains(err.Error(), "wave 1-r1: 1 of 4 nodes failed: n00001 (sysctl") {
		t.Errorf("ended with %v", err)
	}
	f.want(map[string]int{"1": 8, "2": 4})
}
