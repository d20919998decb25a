// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"maps"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/view"
)

// Room says whether the budgets of rollouts let a node be disturbed. It is asked often, and of a
// large fleet: it looks at a node again only when it was told of it, and at all of them when one may
// have become silent meanwhile. It is not safe for use by several goroutines.
type Room struct {
	states []State
	known  Counted
	unwell []map[string]string // by state: its nodes that are not well, with why
	told   map[string]bool     // of which nodes, since it looked
	until  time.Time           // none becomes silent before
	looked int                 // at nodes, in all
}

// NewRoom returns the room that rollouts leave.
func NewRoom(states []State) *Room {
	r := &Room{states: states, known: Counted{Rows: index.Rows{}, Reports: map[string]Report{}}, told: map[string]bool{}}
	for range states {
		r.unwell = append(r.unwell, map[string]string{})
	}
	return r
}

// Tell tells of a node: what is published for it, and what it reported last.
func (r *Room) Tell(n *view.Node) {
	r.told[n.Name] = true
	delete(r.known.Rows, n.Name)
	delete(r.known.Reports, n.Name)
	if n.Published != nil {
		r.known.Rows[n.Name] = *n.Published
	}
	if reported, ok := n.Reported(); ok {
		r.known.Reports[n.Name] = FromReport(reported)
	}
}

// look looks at the nodes of which something may have changed.
func (r *Room) look() {
	if !r.known.Now.Before(r.until) {
		r.until = r.known.Now.Add(24 * time.Hour)
		for name := range r.known.Rows {
			r.told[name] = true
		}
	}
	for name := range r.told {
		r.looked++
		for i, s := range r.states {
			delete(r.unwell[i], name)
			if s.Budget == nil {
				continue
			}
			if _, counts := s.Budget.Nodes[name]; !counts {
				continue
			}
			if why := r.known.unwell(name, s.Rule); why != "" {
				r.unwell[i][name] = why
			}
			report := r.known.Reports[name]
			if end := report.At.Add(report.silence(s.Rule)); !end.Before(r.known.Now) {
				r.until = earlier(r.until, end)
			}
		}
	}
	clear(r.told)
}

// Full says why a node may not be disturbed now: the budget of a rollout that has not ended is
// used up without it. "" where it may. One that moves may be proved by now, and needs room, too.
// Others are disturbed by something else, and the service can hear nodes since a time.
func (r *Room) Full(node string, others map[string]string, listens, now time.Time) string {
	r.known.Now, r.known.Listens = now, listens
	r.look()
	c, moves := r.known, map[string]bool{}
	c.Busy = map[string]string{}
	maps.Copy(c.Busy, others)
	for _, s := range r.states {
		for _, w := range s.Waves {
			for _, name := range w.Moving {
				if s.underWay() {
					c.Busy[name], moves[name] = "rollout "+s.Name, true
				}
			}
		}
	}
	for i, s := range r.states {
		if s.Budget == nil || !s.underWay() {
			continue
		}
		out := maps.Clone(r.unwell[i])
		assumed := c.disturbed(out, s.Budget, s.Rule)
		maps.Copy(assumed, moves)
		if full := newRest(s.Budget, out, assumed).full(node); full != "" {
			return "rollout " + s.Name + " is under way; " + full
		}
	}
	return ""
}
