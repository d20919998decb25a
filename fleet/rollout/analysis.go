// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/analysis"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// measured asks for what the analyses of a plan compare.
func (d *Driver) measured(ctx context.Context, plan *spec.RolloutPlan, now time.Time) (all []analysis.Measured) {
	for _, a := range plan.Rule.Analysis {
		m, err := d.Measure(ctx, a, now)
		if err != nil {
			m = analysis.Measured{Trouble: brief(err.Error())}
		}
		all = append(all, m)
	}
	return all
}

// compare says by the analyses that the last wave that began is worse than it may be, or what
// keeps that from being known.
func (l *look) compare(j judged) (worse, holds string) {
	for i, a := range l.plan.Rule.Analysis {
		sides, others := l.sides(a, j)
		for _, name := range plain.Names(maps.Keys(sides)) {
			s := sides[name]
			few := l.plan.Budget != nil && s.size < a.AtLeast
			switch {
			case s.planned < a.AtLeast, !s.moved:
				continue
			case few && s.waits:
				continue // it is judged when so many have moved
			case l.plan.Budget != nil && !few && a.Against != "" && len(others) < a.AtLeast:
				continue // it was judged before so many had moved
			}
			m := analysis.Measured{Trouble: "it was not asked"}
			if i < len(l.known.Measured) {
				m = l.known.Measured[i]
			}
			bad, unknown := analysis.Judge(a, m, s.well, others)
			what := fmt.Sprintf("analysis %q", brief(a.Query))
			if name != "" {
				what += " of " + name
			}
			if bad != "" {
				return what + ": " + bad, ""
			}
			if unknown != "" && holds == "" {
				holds = what + " holds: " + unknown
			}
		}
	}
	return "", holds
}

// compared is a part of a wave that an analysis judges by itself.
type compared struct {
	planned int      // nodes that it has by the plan
	size    int      // with a budget, those of them that moved and have not failed
	moved   bool     // some of them, failed or not
	waits   bool     // others of them may move yet
	well    []string // nodes that were well for all of the time that is looked at
}

// sides divides the nodes of the last wave that began, by group or under "" all of them, from the
// others: those of the plan that do not have what it brings. A wave that is not judged has no sides.
func (l *look) sides(a spec.Analysis, j judged) (sides map[string]*compared, others []string) {
	sides = map[string]*compared{}
	n := len(l.row.Waves) - 1
	if !slices.Contains(Judged(l.plan, a), l.plan.Waves[n].Name) {
		return nil, nil
	}
	for i, w := range l.plan.Waves {
		for name, given := range w.Nodes {
			has := l.known.Rows[name].Overlay == given
			if !has && (i > n || l.plan.Budget != nil) {
				others = append(others, name)
			}
			if i != n {
				continue
			}
			group := groupOf(l.plan, a, name)
			if sides[group] == nil {
				sides[group] = &compared{}
			}
			s := sides[group]
			s.planned++
			s.moved = s.moved || has
			if l.plan.Budget != nil && (!has || j.LeftOut[name] != "" || j.Failed[name] != "") {
				continue
			}
			s.size++
			if since, well := j.well[name]; well && l.now.Sub(since) >= time.Duration(a.For)*time.Second {
				s.well = append(s.well, name)
			}
		}
	}
	for _, name := range slices.Concat(j.waiting, j.unheard) {
		sides[groupOf(l.plan, a, name)].waits = true
	}
	return sides, others
}

// groupOf names the group in which an analysis compares a node, as in "rack r1"; "" is the wave.
func groupOf(plan *spec.RolloutPlan, a spec.Analysis, node string) string {
	if a.Of != spec.OfGroup || plan.Budget == nil {
		return ""
	}
	return plan.Budget.Per + " " + plan.Budget.Nodes[node]
}

// Judged names the waves of a plan, in order, that an analysis can judge: they have enough nodes,
// and leave enough others.
func Judged(plan *spec.RolloutPlan, a spec.Analysis) (waves []string) {
	left := count(plan)
	for _, w := range plan.Waves {
		sizes, most := map[string]int{}, 0
		for name := range w.Nodes {
			group := groupOf(plan, a, name)
			sizes[group]++
			most = max(most, sizes[group])
		}
		others := left - len(w.Nodes)
		if plan.Budget != nil {
			others = left - unjudged(plan.Budget, w, a, sizes)
		}
		if left -= len(w.Nodes); most >= a.AtLeast && (a.Against == "" || others >= a.AtLeast) {
			waves = append(waves, w.Name)
		}
	}
	return waves
}

// unjudged is how many nodes of a wave may have moved before an analysis judges any: not enough of each
// part, and those that the budget lets move with the next step.
func unjudged(b *spec.RolloutBudget, w spec.Wave, a spec.Analysis, parts map[string]int) (n int) {
	for _, size := range parts {
		n += min(size, a.AtLeast-1)
	}
	groups, step := map[string]int{}, 0
	for name := range w.Nodes {
		groups[b.Nodes[name]]++
	}
	for _, size := range groups {
		step += atOnce(b, size)
	}
	if b.Overall > 0 {
		step = min(step, b.Overall)
	}
	return min(n+step, len(w.Nodes))
}

// leaves says what else an analysis wants of a wave.
func leaves(a spec.Analysis) string {
	if a.Against == "" {
		return ""
	}
	return " and leaves as many that have not moved"
}
