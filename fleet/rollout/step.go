// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// step makes a decision a step.
func (d *Driver) step(ctx context.Context, f *published.Fleet, plan *spec.RolloutPlan, row spec.Rollout,
	what Decision) (s *publish.Step, err error) {
	now := d.Now().Unix()
	row.Waves = slices.Clone(row.Waves)
	s = &publish.Step{Named: plan.Named, Why: row.Reason}
	c := &course{f: f, plan: plan, now: now, only: map[string]bool{}}
	if plan.Budget != nil {
		c.only = plain.Map(what.Nodes, func(name string) (string, bool) { return name, true })
		if before := row; d.Slots != nil && len(what.Nodes) > 0 {
			s.Announced = func(ctx context.Context) error {
				busy, err := d.busy(ctx, f)
				if err != nil {
					return err
				}
				return what.stillFits(plan, before, busy, d.Now())
			}
		}
	}
	for i := range row.Waves {
		if i < len(what.Of) {
			row.Waves[i].Failed, row.Waves[i].LeftOut, row.Waves[i].Moving = what.Of[i].Failed, what.Of[i].LeftOut, what.Of[i].Moving
		}
	}
	switch what.Act {
	case Begin, More, Late, End:
		if err = d.begin(ctx, c, &row, s, what); err == nil {
			err = d.rehearsed(ctx, f, plan, s.Nodes)
		}
	case Finish:
		row.Waves[what.Wave].Done = now
		s.What, s.Why = "wave "+plan.Waves[what.Wave].Name+" done", fmt.Sprintf("%d healthy, %d failed, %d left out",
			what.Good, len(what.Of[what.Wave].Failed), len(what.Of[what.Wave].LeftOut))
	case Halt:
		row.Phase, row.Since, row.Author, row.Reason = spec.RolloutHalted, now, d.By.Author, what.Reason
		s.What, s.Why = "halt", what.Reason
		// What cannot go back stays, and is named: the others do not wait for it.
		switch {
		case plan.Rule.Undo == spec.UndoAll:
			s.Reject = plan.Layers
			err = c.all(ctx, &row, s)
		case plan.Rule.Undo == spec.UndoWave && len(what.Back) > 0:
			err = c.back(ctx, &row, s, what.Back)
		}
	case Return:
		s.What = "way back"
		if row.Phase == spec.RolloutHalted && plan.Rule.Undo == spec.UndoAll {
			s.Reject = plan.Layers
		}
		err = c.back(ctx, &row, s, returning(row))
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
				why = append(why, fmt.Sprintf("%d of %s %s: %s", n, plain.Count(plan.Size(), "node"), w.what, some(w.nodes)))
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
func (d *Driver) begin(ctx context.Context, c *course, row *spec.Rollout, s *publish.Step, what Decision) (err error) {
	plan, now := c.plan, c.now
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
	case More:
		s.What = "wave " + plan.Waves[what.Wave].Name + " goes on"
	case Begin:
		s.What = "wave " + plan.Waves[what.Wave].Name
	}
	if plan.Budget != nil {
		d.announce(plan, row, s, what.Nodes)
	}
	if s.Nodes, err = d.compiled(ctx, plan, what); err != nil {
		return &stop{err}
	}
	if len(what.Nodes) > 0 {
		s.First = d.First
	}
	if plan.Budget == nil {
		s.Placed = func() { row.Waves[what.Wave].Begun = d.Now().Unix() } // not while nodes cannot have it yet
	}
	return nil
}

// announce notes that nodes move, which the index says before they do: should the step be
// cut, they count, and the next one goes on with them.
func (d *Driver) announce(plan *spec.RolloutPlan, row *spec.Rollout, s *publish.Step, nodes []string) {
	mark := func() {
		for i, w := range row.Waves {
			elsewhere := func(name string) bool { return plan.Waves[i].Nodes[name] == "" }
			row.Waves[i].Moving = withMoving(w.Moving, d.Now().Unix(), slices.DeleteFunc(slices.Clone(nodes), elsewhere)...)
		}
	}
	mark()
	cut := *row
	cut.Waves = slices.Clone(row.Waves)
	s.Cut, s.Placed = &cut, mark
}

// onItsWay is why a node did not go back, as long as that is under way or was cut.
const onItsWay = "its way back is not done"

// wasCut reports whether a way back is not done: it is under way, or was cut.
func wasCut(row spec.Rollout) bool {
	return (row.Phase == spec.RolloutHalted || row.Phase == spec.RolloutUndone) &&
		slices.ContainsFunc(row.Waves, func(w spec.RolloutWave) bool {
			return slices.Contains(slices.Collect(maps.Values(w.Stayed)), onItsWay)
		})
}

// course holds what a step of a rollout is made of, forth or back.
type course struct {
	f    *published.Fleet
	plan *spec.RolloutPlan
	now  int64
	only map[string]bool // of a plan with a budget: who goes back now; the others follow
	lost error           // says what nodes cannot get back, once back has looked
}

// all makes all nodes go back that have what the rollout brings.
func (c *course) all(ctx context.Context, row *spec.Rollout, s *publish.Step) error {
	if err := c.begunAndCut(ctx, row); err != nil {
		return err
	}
	waves := make([]int, len(row.Waves))
	for i := range waves {
		waves[i] = i
	}
	return c.back(ctx, row, s, waves)
}

// begunAndCut adds the wave that was cut when it began, if there is one: some of its nodes
// have what it brings.
func (c *course) begunAndCut(ctx context.Context, row *spec.Rollout) error {
	n := len(row.Waves)
	if n == len(c.plan.Waves) {
		return nil
	}
	for name, digest := range c.plan.Waves[n].Nodes {
		has, _, err := c.f.Row(ctx, name)
		if err != nil {
			return err
		}
		if has.Overlay == digest {
			row.Waves = append(row.Waves, spec.RolloutWave{Begun: c.now})
			return nil
		}
	}
	return nil
}

// back marks waves as gone back, with the nodes that did not, and prepares what their
// nodes had. Of a wave that went back before, it is the nodes that did not then. Should
// the step be cut, those that were to move did not.
func (c *course) back(ctx context.Context, row *spec.Rollout, s *publish.Step, waves []int) error {
	given, follow := map[string]string{}, map[string]string{}
	for _, i := range waves {
		for name, overlay := range c.plan.Waves[i].Nodes {
			if row.Waves[i].Back != 0 && row.Waves[i].Stayed[name] == "" {
				continue
			}
			given[name] = overlay
			if c.plan.Budget == nil || c.only[name] {
				continue
			}
			has, _, err := c.f.Row(ctx, name)
			if err != nil {
				return err
			}
			if has.Overlay == overlay { // the others have not moved
				follow[name] = onItsWay
				delete(given, name)
			}
		}
	}
	back, err := hold.ReadyBack(ctx, c.f, given, c.plan.Before)
	if err != nil {
		return err
	}
	s.Work, s.Stay, c.lost = back.Work, back.Stay, back.Lost
	cut, going := *row, map[string]string{}
	cut.Waves = slices.Clone(row.Waves)
	maps.Copy(going, s.Stay)
	maps.Copy(going, follow)
	for _, w := range s.Work {
		going[w.Name] = onItsWay
	}
	c.mark(&cut, waves, going)
	maps.Copy(follow, s.Stay)
	c.mark(row, waves, follow)
	for _, i := range waves {
		row.Waves[i].Moving = waiting(row.Waves[i].Moving, follow) // of the others what they report counts from now on
		for _, w := range s.Work {
			if c.plan.Budget != nil && c.plan.Waves[i].Nodes[w.Name] != "" {
				cut.Waves[i].Moving = withMoving(cut.Waves[i].Moving, c.now, w.Name)
			}
		}
	}
	s.Cut = &cut
	return nil
}

// mark notes when waves went back, and which of their nodes did not.
func (c *course) mark(row *spec.Rollout, waves []int, stay map[string]string) {
	for _, i := range waves {
		w := &row.Waves[i]
		w.Back, w.Stayed = cmp.Or(w.Back, c.now), nil
		for name := range c.plan.Waves[i].Nodes {
			if why := stay[name]; why != "" {
				if w.Stayed == nil {
					w.Stayed = map[string]string{}
				}
				w.Stayed[name] = why
			}
		}
	}
}

// waiting returns those that move and are to follow later on a way back.
func waiting(moving map[string]int64, follow map[string]string) map[string]int64 {
	var out map[string]int64
	for name, since := range moving {
		if follow[name] == onItsWay {
			out = withMoving(out, since, name)
		}
	}
	return out
}

// withMoving returns a copy of what moves with more nodes.
func withMoving(moving map[string]int64, since int64, nodes ...string) map[string]int64 {
	out := maps.Clone(moving)
	if out == nil && len(nodes) > 0 {
		out = make(map[string]int64, len(nodes))
	}
	for _, name := range nodes {
		out[name] = since
	}
	return out
}

// ofAll puts together what is said of the nodes of waves.
func ofAll[W any](waves []W, of func(W) map[string]string) map[string]string {
	all := map[string]string{}
	for _, w := range waves {
		maps.Copy(all, of(w))
	}
	return all
}

// failed returns the nodes that failed, fewer than halt their wave, with why.
func failed(row spec.Rollout) map[string]string {
	return ofAll(row.Waves, func(w spec.RolloutWave) map[string]string { return w.Failed })
}

// leftOut returns the nodes of a fleet that a rollout left out, with why. Those that
// left the fleet since do not count.
func leftOut(row spec.Rollout) map[string]string {
	all := ofAll(row.Waves, func(w spec.RolloutWave) map[string]string { return w.LeftOut })
	maps.DeleteFunc(all, func(_, why string) bool { return why == gone })
	return all
}
