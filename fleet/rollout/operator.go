// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

// Verb is an operator's act on a rollout.
type Verb string

// Verbs.
const (
	Pause  Verb = "pause"  // no wave begins or ends
	Resume Verb = "resume" // after a pause, or a halt: a wave that did not end begins again
	Abort  Verb = "abort"  // end it where it is
	Undo   Verb = "undo"   // end it, and give all of its nodes what they had; once more after that for those that stayed
)

// Do does it.
func Do(ctx context.Context, p *publish.Publisher, policy publish.Policy, by publish.By, name string, verb Verb) (*publish.Result, error) {
	return p.Advance(ctx, policy, name, by, func(ctx context.Context, f *publish.Fleet) (*publish.Step, error) {
		row, ok := f.Rollouts()[name]
		if !ok {
			return nil, cli.WithHint(fmt.Errorf("the fleet has no rollout %q", name), "'caisson rollout status' lists them")
		}
		plan, err := f.Plan(ctx, name, row)
		if err != nil {
			return nil, err
		}
		return act(ctx, f, plan, row, verb, by, f.Now().Unix())
	})
}

// unproved returns the nodes that are not proved: they go back at once, whatever the budget. Those
// that failed may be well by now, as a report shows the driver that goes on with the way back.
func unproved(row spec.Rollout) map[string]bool {
	names := map[string]bool{}
	for _, w := range row.Waves {
		for name := range w.Moving {
			names[name] = true
		}
	}
	return names
}

// allBack wants that all nodes of a rollout with a budget can go back, those that follow later,
// too.
func allBack(ctx context.Context, f *publish.Fleet, plan *spec.RolloutPlan, row spec.Rollout) error {
	if plan.Budget == nil {
		return nil // all go now
	}
	given := map[string]string{}
	for i := range row.Waves {
		maps.Copy(given, plan.Waves[i].Nodes)
	}
	back, err := f.Back(ctx, given, plan.Before)
	if err != nil {
		return err
	}
	return back.Lost
}

// phases says from which phases a verb leads to which.
var phases = map[Verb]struct {
	to   string
	from []string
}{
	Pause:  {spec.RolloutPaused, []string{spec.RolloutRunning}},
	Resume: {spec.RolloutRunning, []string{spec.RolloutPaused, spec.RolloutHalted}},
	Abort:  {spec.RolloutAborted, []string{spec.RolloutRunning, spec.RolloutPaused, spec.RolloutHalted}},
	// once more, for nodes that stayed
	Undo: {spec.RolloutUndone, []string{spec.RolloutRunning, spec.RolloutPaused, spec.RolloutHalted, spec.RolloutAborted,
		spec.RolloutDone, spec.RolloutUndone}},
}

func act(ctx context.Context, f *publish.Fleet, plan *spec.RolloutPlan, row spec.Rollout, verb Verb, by publish.By,
	now int64) (s *publish.Step, err error) {
	move := phases[verb]
	stayed := slices.ContainsFunc(row.Waves, func(w spec.RolloutWave) bool { return len(w.Stayed) > 0 })
	if !slices.Contains(move.from, row.Phase) || row.Phase == spec.RolloutUndone && !stayed {
		return nil, fmt.Errorf("%s rollout %s: it is %s", verb, plan.Name, row.Phase)
	}
	if verb == Resume {
		if err := f.Allowed(plan.Layers...); err != nil {
			return nil, fmt.Errorf("resume rollout %s: %w", plan.Name, err)
		}
	}
	row.Waves = slices.Clone(row.Waves)
	row.Phase, row.Since, row.Author, row.Reason = move.to, now, by.Author, by.Reason
	s = &publish.Step{What: string(verb)}
	switch verb {
	case Undo:
		way := &wayBack{f: f, plan: plan, now: now, only: unproved(row)}
		if err = allBack(ctx, f, plan, row); err == nil {
			err = way.all(ctx, &row, s)
		}
		if err == nil {
			err = s.Back.Lost // an operator decides about that before anything changes
		}
		if err != nil {
			return nil, fmt.Errorf("undo rollout %s: %w", plan.Name, err)
		}
	case Abort:
		if err := begunAndCut(ctx, f, plan, &row, now); err != nil {
			return nil, err
		}
	case Resume:
		// What nodes were given before the break does not count now.
		row.Waves = row.Waves[:whole(plan, row)]
	}
	s.Row = row
	return s, nil
}

// whole returns how many of a rollout's waves, from the first one on, need not begin again.
func whole(plan *spec.RolloutPlan, row spec.Rollout) int {
	for i, w := range row.Waves {
		if w.Done == 0 || w.Back != 0 || halts(plan.Rule, len(w.Failed), len(plan.Waves[i].Nodes)-len(w.LeftOut)) {
			return i
		}
	}
	return len(row.Waves)
}
