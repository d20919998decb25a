// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/analysis"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// State says how far a rollout is, for people and their tools.
type State struct {
	Name   string           `json:"name"`
	Plan   string           `json:"plan,omitempty"` // digest of its manifest
	Phase  string           `json:"phase"`
	Since  time.Time        `json:"since"`
	Author string           `json:"author,omitempty"`
	Reason string           `json:"reason,omitempty"`
	Before spec.Floor       `json:"before"` // where nodes go back to
	Layers []string         `json:"layers"` // that it brings
	Rule   spec.RolloutRule `json:"rule"`
	Waves  []WaveState      `json:"waves"`

	Budget *spec.RolloutBudget `json:"-"` // nil: the nodes of a wave move together
}

// WaveState is one wave of a [State].
type WaveState struct {
	Name    string            `json:"name"`
	State   string            `json:"state"` // waiting, running, done or back
	Begun   time.Time         `json:"begun,omitzero"`
	Done    time.Time         `json:"done,omitzero"`
	Back    time.Time         `json:"back,omitzero"`
	Nodes   []string          `json:"nodes"`
	Gives   map[string]string `json:"-"`       // node → digest of the overlay that the wave has for it
	LeftOut map[string]string `json:"leftOut"` // node → why
	Failed  map[string]string `json:"failed"`  // node → why
	Stayed  map[string]string `json:"stayed"`  // node → why it did not go back with the others

	Moving []string `json:"moving,omitempty"` // of a plan with a budget: nodes that have to prove themselves now

	Unrehearsed string `json:"unrehearsed,omitempty"` // why it may not begin yet, when the plan was signed: see [State.Unrehearsed]
}

// States reads the rollouts of a fleet, the newest first.
func States(ctx context.Context, f *published.Fleet) ([]State, error) {
	rows := f.Rollouts()
	out := []State{}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		plan, err := f.Plan(ctx, name, rows[name])
		if err != nil {
			return nil, err
		}
		out = append(out, StateOf(plan, rows[name]))
	}
	slices.SortStableFunc(out, func(a, b State) int { return b.Since.Compare(a.Since) })
	return out, nil
}

// StateOf puts a plan and how far it is together.
func StateOf(plan *spec.RolloutPlan, row spec.Rollout) State {
	s := State{Name: plan.Name, Plan: row.Plan, Phase: row.Phase, Since: at(row.Since), Author: row.Author, Reason: row.Reason,
		Before: plan.Before, Layers: append([]string{}, plan.Layers...), Rule: plan.Rule, Budget: plan.Budget}
	for i, w := range plan.Waves {
		v := WaveState{Name: w.Name, State: "waiting", Nodes: plain.Names(maps.Keys(w.Nodes)), Gives: w.Nodes,
			LeftOut: map[string]string{}, Failed: map[string]string{}, Stayed: map[string]string{}}
		if i < len(row.Waves) {
			r := row.Waves[i]
			v.Moving = plain.Names(maps.Keys(r.Moving))
			v.Begun, v.Done, v.Back = at(r.Begun), at(r.Done), at(r.Back)
			maps.Copy(v.LeftOut, r.LeftOut)
			maps.Copy(v.Failed, r.Failed)
			maps.Copy(v.Stayed, r.Stayed)
			switch {
			case r.Back != 0:
				v.State = "back"
			case r.Done != 0:
				v.State = "done"
			default:
				v.State = "running"
			}
		}
		s.Waves = append(s.Waves, v)
	}
	return s
}

// Stayed reports whether a node did not go back with the others.
func (s *State) Stayed() bool {
	return slices.ContainsFunc(s.Waves, func(w WaveState) bool { return len(w.Stayed) > 0 })
}

// LeaveOut names nodes of waves that have not begun, with why they would be left out now.
func (s *State) LeaveOut(held map[string]string) {
	for _, w := range s.Waves {
		for _, name := range w.Nodes {
			if why := held[name]; why != "" && w.Begun.IsZero() {
				w.LeftOut[name] = why
			}
		}
	}
}

func at(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// WritePlan prints for people the waves and the earliest time of each where the first begins then,
// and which of them analyses judge.
func (s State) WritePlan(w io.Writer, plan *spec.RolloutPlan, from time.Time) {
	for _, wave := range s.Waves {
		cli.Printf(w, "wave %s\tfrom %s\t%s\n", wave.Name, from.Format(time.RFC3339), plain.Count(len(wave.Nodes), "node"))
		if wave.Unrehearsed != "" {
			cli.Printf(w, "  %s\n", wave.Unrehearsed)
		}
		var nodes plain.Alike
		for _, n := range wave.Nodes {
			says := "gets what is planned"
			if why := wave.LeftOut[n]; why != "" {
				says = why + ": it stays as it is, unless that ends before its wave"
			}
			nodes.Add(n, says, says)
		}
		nodes.Print(w, "  ")
		from = from.Add(time.Duration(s.Rule.Soak) * time.Second)
	}
	if s.Budget != nil {
		writeBudget(w, s.Budget)
	}
	for _, one := range plan.Rule.Analysis {
		cli.Printf(w, "analysis %q\tjudges wave %s\n", one.Query, strings.Join(analysis.Waves(plan, one), ", "))
	}
}

// writeBudget prints how many nodes of each group may be unavailable at once.
func writeBudget(w io.Writer, b *spec.RolloutBudget) {
	sizes := groupSizes(b)
	var groups plain.Alike
	for _, name := range plain.Names(maps.Keys(sizes)) {
		if b.Per != "" {
			says := fmt.Sprintf("at most %d of %d unavailable at once", b.AtOnce(sizes[name]), sizes[name])
			groups.Add(b.Per+" "+name, says, says)
		}
	}
	groups.Print(w, "")
	if b.Overall > 0 {
		cli.Printf(w, "all\tat most %d of %d unavailable at once\n", min(b.Overall, len(b.Nodes)), len(b.Nodes))
	}
}

// Write prints for people how far the rollout is.
func (s State) Write(w io.Writer) {
	since := plain.With(s.Phase+" since "+s.Since.Format(time.RFC3339), " by ", s.Author)
	cli.Printf(w, "%s\t%s\n", s.Name, plain.With(since, ": ", s.Reason))
	for _, wave := range s.Waves {
		cli.Printf(w, "  wave %s\t%s\t%s", wave.Name, wave.State, plain.Count(len(wave.Nodes), "node"))
		for i, n := range []int{len(wave.Moving), len(wave.LeftOut), len(wave.Failed), len(wave.Stayed)} {
			if n > 0 {
				cli.Printf(w, ", %d %s", n, []string{"not proved yet", "left out", "failed", "did not go back"}[i])
			}
		}
		cli.Printf(w, "\n")
		if wave.Unrehearsed != "" {
			cli.Printf(w, "    %s\n", wave.Unrehearsed)
		}
		for _, l := range []struct {
			what  string
			nodes map[string]string
		}{{"left out", wave.LeftOut}, {"failed", wave.Failed}, {"did not go back", wave.Stayed}} {
			for _, name := range wave.Nodes {
				if why := l.nodes[name]; why != "" {
					cli.Printf(w, "    %s\t%s: %s\n", name, l.what, why)
				}
			}
		}
	}
}

// Brief is a rollout at a glance.
type Brief struct {
	Name    string    `json:"name"`
	Phase   string    `json:"phase"`
	Since   time.Time `json:"since"`
	Author  string    `json:"author,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Wave    string    `json:"wave,omitempty"` // that runs
	Waves   int       `json:"waves"`
	Done    int       `json:"done"` // waves
	Nodes   int       `json:"nodes"`
	LeftOut int       `json:"leftOut"`
	Failed  int       `json:"failed"`
	Stayed  int       `json:"stayed"`        // nodes that did not go back with the others
	Stepped time.Time `json:"stepped"`       // when something came of it last
	Ends    time.Time `json:"ends,omitzero"` // when a running one is expected to end, as its waves have gone so far
}

// Brief returns a rollout at a glance.
func (s *State) Brief(now time.Time) Brief {
	b := Brief{Name: s.Name, Phase: s.Phase, Since: s.Since, Author: s.Author, Reason: s.Reason, Waves: len(s.Waves), Stepped: s.Since}
	each := time.Duration(s.Rule.Soak) * time.Second
	var took, left time.Duration // of waves that are done; of those that are not
	ran := 0
	for _, w := range s.Waves {
		b.Nodes += len(w.Nodes)
		b.LeftOut += len(w.LeftOut)
		b.Failed += len(w.Failed)
		b.Stayed += len(w.Stayed)
		b.Stepped = later(b.Stepped, later(w.Begun, later(w.Done, w.Back)))
		switch {
		case w.Done.IsZero() && w.Begun.IsZero() || !w.Back.IsZero():
		case w.Done.IsZero():
			b.Wave = w.Name
		default:
			if b.Done++; w.Done.After(w.Begun) { // somebody was in it
				took += w.Done.Sub(w.Begun)
				ran++
			}
		}
	}
	if ran > 0 {
		each = max(each, took/time.Duration(ran))
	}
	for _, w := range s.Waves {
		switch {
		case w.Begun.IsZero():
			left += each
		case w.Done.IsZero():
			left += max(0, w.Begun.Add(each).Sub(now))
		}
	}
	if s.Phase == spec.RolloutRunning {
		b.Ends = now.Add(left).Truncate(time.Second)
	}
	return b
}

// Ended reports whether nothing will come of it any more.
func (b Brief) Ended() bool { return spec.Rollout{Phase: b.Phase}.Ended() }

// String says how far it is.
func (b Brief) String() string {
	text := plain.With(b.Phase+" since "+b.Since.UTC().Format(time.RFC3339), ": ", b.Reason)
	text += fmt.Sprintf("; %d of %s done", b.Done, plain.Count(b.Waves, "wave"))
	if b.Wave != "" && !b.Ended() {
		text += ", wave " + b.Wave + " has begun"
	}
	for _, n := range []struct {
		n    int
		what string
	}{{b.LeftOut, "left out"}, {b.Failed, "failed"}, {b.Stayed, "did not go back"}} {
		if n.n > 0 {
			text += fmt.Sprintf("; %d of %s %s", n.n, plain.Count(b.Nodes, "node"), n.what)
		}
	}
	if !b.Ends.IsZero() {
		text += "; expected to end at " + b.Ends.UTC().Format(time.RFC3339)
	}
	return text
}
