// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
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
}

// States reads the rollouts of a fleet, the newest first.
func States(ctx context.Context, f *publish.Fleet) ([]State, error) {
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
		Before: plan.Before, Layers: append([]string{}, plan.Layers...), Rule: plan.Rule}
	for i, w := range plan.Waves {
		v := WaveState{Name: w.Name, State: "waiting", Nodes: plain.Names(maps.Keys(w.Nodes)), Gives: w.Nodes, LeftOut: map[string]string{}, Failed: map[string]string{}, Stayed: map[string]string{}}
		if i < len(row.Waves) {
			r := row.Waves[i]
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

// Write prints for people how far the rollout is.
func (s State) Write(w io.Writer) {
	line := fmt.Sprintf("%s since %s", s.Phase, s.Since.Format(time.RFC3339))
	if s.Author != "" {
		line += " by " + s.Author
	}
	if s.Reason != "" {
		line += ": " + s.Reason
	}
	cli.Printf(w, "%s\t%s\n", s.Name, line)
	for _, wave := range s.Waves {
		cli.Printf(w, "  wave %s\t%s\t%s", wave.Name, wave.State, plain.Count(len(wave.Nodes), "node"))
		if n := len(wave.LeftOut); n > 0 {
			cli.Printf(w, ", %d left out", n)
		}
		if n := len(wave.Failed); n > 0 {
			cli.Printf(w, ", %d failed", n)
		}
		if n := len(wave.Stayed); n > 0 {
			cli.Printf(w, ", %d did not go back", n)
		}
		cli.Printf(w, "\n")
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
