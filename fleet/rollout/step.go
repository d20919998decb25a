// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// step makes a decision a step.
func (d *Driver) step(ctx context.Context, f *publish.Fleet, plan *spec.RolloutPlan, row spec.Rollout, what Decision) (s *publish.Step, err error) {
	now := d.Now().Unix()
	row.Waves = slices.Clone(row.Waves)
	s = &publish.Step{Named: plan.Named, Why: row.Reason}
	for i := range row.Waves {
		if i < len(what.Of) {
			row.Waves[i].Failed, row.Waves[i].LeftOut = what.Of[i].Failed, what.Of[i].LeftOut
		}
	}
	switch what.Act {
	case Begin, Late, End:
		err = d.begin(ctx, plan, &row, s, what, now)
	case Finish:
		row.Waves[what.Wave].Done = now
		s.What, s.Why = "wave "+plan.Waves[what.Wave].Name+" done", fmt.Sprintf("%d healthy, %d failed, %d left out", what.Good, len(what.Of[what.Wave].Failed), len(what.Of[what.Wave].LeftOut))
	case Halt:
		row.Phase, row.Since, row.Author, row.Reason = spec.RolloutHalted, now, d.By.Author, what.Reason
		s.What, s.Why = "halt", what.Reason
		// What cannot go back stays, and is named: the others do not wait for it.
		switch {
		case plan.Rule.Undo == spec.UndoAll:
			s.Reject = plan.Layers
			err = goBackAll(ctx, f, plan, &row, s, now)
		case plan.Rule.Undo == spec.UndoWave && len(what.Back) > 0:
			err = goBack(ctx, f, plan, &row, s, what.Back, now)
		}
	case Return:
		s.What = "way back"
		if row.Phase == spec.RolloutHalted && plan.Rule.Undo == spec.UndoAll {
			s.Reject = plan.Layers
		}
		var waves []int
		for i, w := range row.Waves {
			if w.Back != 0 {
				waves = append(waves, i)
			}
		}
		err = goBack(ctx, f, plan, &row, s, waves, now)
	}
	if err != nil {
		return nil, err
	}
	if n := len(row.Waves); n == len(plan.Waves) && row.Waves[n-1].Done != 0 && row.Phase == spec.RolloutRunning {
		row.Phase, row.Since = spec.RolloutDone, now
		s.What = "done"
		var why []string
		for _, w := range []struct {
			nodes map[string]string
			what  string
		}{{leftOut(row), "left out"}, {failed(row), "failed"}} {
			if n := len(w.nodes); n > 0 {
				why = append(why, fmt.Sprintf("%d of %s %s: %s", n, plain.Count(count(plan), "node"), w.what, some(w.nodes)))
			}
		}
		if s.Why = strings.Join(why, "; "); s.Why != "" {
			row.Reason = strings.TrimPrefix(row.Reason+"; "+s.Why, "; ")
		}
	}
	s.Row = row
	return s, nil
}

// begin makes waves begin, or what is left of them end.
func (d *Driver) begin(ctx context.Context, plan *spec.RolloutPlan, row *spec.Rollout, s *publish.Step, what Decision, now int64) (err error) {
	for i := len(row.Waves); i <= what.Wave; i++ {
		w := spec.RolloutWave{Begun: now, LeftOut: what.Of[i].LeftOut}
		if i < what.Wave || what.Act == End {
			w.Done = now // nobody is in it
		}
		row.Waves = append(row.Waves, w)
	}
	switch what.Act {
	case End:
		return nil
	case Late:
		row.Waves[what.Wave].Begun, row.Waves[what.Wave].Done = now, 0
		s.What = "late nodes"
	case Begin:
		s.What = "wave " + plan.Waves[what.Wave].Name
	}
	if s.Nodes, err = d.compiled(ctx, plan, what); err != nil {
		return &stop{err}
	}
	s.First = d.First
	s.Placed = func() { row.Waves[what.Wave].Begun = d.Now().Unix() } // not while nodes cannot have it yet
	return nil
}

// onItsWay is why a node did not go back, as long as that is under way or was cut.
const onItsWay = "its way back is not done"

// wasCut reports whether a way back is not done: it is under way, or was cut.
func wasCut(row spec.Rollout) bool {
	return (row.Phase == spec.RolloutHalted || row.Phase == spec.RolloutUndone) && slices.ContainsFunc(row.Waves, func(w spec.RolloutWave) bool {
		for _, why := range w.Stayed {
			if why == onItsWay {
				return true
			}
		}
		return false
	})
}

// goBackAll makes all nodes go back that have what the rollout brings.
func goBackAll(ctx context.Context, f *publish.Fleet, plan *spec.RolloutPlan, row *spec.Rollout, s *publish.Step, now int64) error {
	if err := begunAndCut(ctx, f, plan, row, now); err != nil {
		return err
	}
	waves := make([]int, len(row.Waves))
	for i := range waves {
		waves[i] = i
	}
	return goBack(ctx, f, plan, row, s, waves, now)
}

// begunAndCut adds the wave that was cut when it began, if there is one: some of its nodes
// have what it brings.
func begunAndCut(ctx context.Context, f *publish.Fleet, plan *spec.RolloutPlan, row *spec.Rollout, now int64) error {
	n := len(row.Waves)
	if n == len(plan.Waves) {
		return nil
	}
	for name, digest := range plan.Waves[n].Nodes {
		has, _, err := f.Row(ctx, name)
		if err != nil {
			return err
		}
		if has.Overlay == digest {
			row.Waves = append(row.Waves, spec.RolloutWave{Begun: now})
			return nil
		}
	}
	return nil
}

// goBack marks waves as gone back, with the nodes that did not, and prepares what their
// nodes had. Of a wave that went back before, it is the nodes that did not then. Should
// the step be cut, those that were to move did not.
func goBack(ctx context.Context, f *publish.Fleet, plan *spec.RolloutPlan, row *spec.Rollout, s *publish.Step, waves []int, now int64) (err error) {
	given := map[string]string{}
	for _, i := range waves {
		for name, overlay := range plan.Waves[i].Nodes {
			if row.Waves[i].Back == 0 || row.Waves[i].Stayed[name] != "" {
				given[name] = overlay
			}
		}
	}
	if s.Back, err = f.Back(ctx, given, plan.Before); err != nil {
		return err
	}
	mark := func(row *spec.Rollout, stay map[string]string) {
		for _, i := range waves {
			w := &row.Waves[i]
			w.Back, w.Stayed = cmp.Or(w.Back, now), nil
			for name := range plan.Waves[i].Nodes {
				if why := stay[name]; why != "" {
					if w.Stayed == nil {
						w.Stayed = map[string]string{}
					}
					w.Stayed[name] = why
				}
			}
		}
	}
	cut, going := *row, map[string]string{}
	cut.Waves = slices.Clone(row.Waves)
	maps.Copy(going, s.Back.Stay)
	for _, name := range s.Back.Nodes() {
		going[name] = onItsWay
	}
	mark(&cut, going)
	mark(row, s.Back.Stay)
	s.Cut = &cut
	return nil
}

// givenBy returns the digest of the overlay that a plan has for a node.
func givenBy(plan *spec.RolloutPlan, node string) string {
	for _, w := range plan.Waves {
		if digest := w.Nodes[node]; digest != "" {
			return digest
		}
	}
	return ""
}

// failed returns the nodes that failed, fewer than halt their wave, with why.
func failed(row spec.Rollout) map[string]string {
	all := map[string]string{}
	for _, w := range row.Waves {
		maps.Copy(all, w.Failed)
	}
	return all
}

// leftOut returns the nodes of a fleet that a rollout left out, with why. Those that
// left the fleet since do not count.
func leftOut(row spec.Rollout) map[string]string {
	all := map[string]string{}
	for _, w := range row.Waves {
		maps.Copy(all, w.LeftOut)
	}
	maps.DeleteFunc(all, func(_, why string) bool { return why == gone })
	return all
}
