// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"maps"
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
			if s.size < a.AtLeast || a.Against != "" && len(others) < a.AtLeast {
				continue // by the plan, or too few have moved yet
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
	size int      // nodes that it has by the plan; with a budget those that moved and have not failed
	well []string // nodes that were well for all of the time that is looked at
}

// sides divides the nodes of the last wave that began, by group or under "" all of them, from the
// others: those of the plan that do not have what it brings.
func (l *look) sides(a spec.Analysis, j judged) (sides map[string]*compared, others []string) {
	sides = map[string]*compared{}
	n := len(l.row.Waves) - 1
	for i, w := range l.plan.Waves {
		for name, given := range w.Nodes {
			has := l.known.Rows[name].Overlay == given
			if !has && (i > n || l.plan.Budget != nil) {
				others = append(others, name)
			}
			if i != n || l.plan.Budget != nil && (!has || j.LeftOut[name] != "" || j.Failed[name] != "") {
				continue
			}
			group := groupOf(l.plan, a, name)
			if sides[group] == nil {
				sides[group] = &compared{}
			}
			sides[group].size++
			if since, well := j.well[name]; well && l.now.Sub(since) >= time.Duration(a.For)*time.Second {
				sides[group].well = append(sides[group].well, name)
			}
		}
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
			others = left - a.AtLeast // when so many have moved
		}
		if left -= len(w.Nodes); most >= a.AtLeast && (a.Against == "" || others >= a.AtLeast) {
			waves = append(waves, w.Name)
		}
	}
	return waves
}

// leaves says what else an analysis wants of a wave.
func leaves(a spec.Analysis) string {
	if a.Against == "" {
		return ""
	}
	return " and leaves as many that have not moved"
}
