// SPDX-License-Identifier: Apache-2.0

package history

import (
	"maps"
	"slices"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// Difference lists changes, with nodes that changed alike together.
type Difference struct {
	From   string  `json:"from"` // a generation, or a node
	To     string  `json:"to"`
	Nodes  int     `json:"nodes"`          // that changed
	Kinds  []Kind  `json:"kinds"`          // by name
	Groups []Group `json:"groups"`         // the most nodes first
	More   int     `json:"more,omitempty"` // nodes that Groups has no room for
	// what nodes went to, with what it closes; absent where no file of advisories was given
	Layers []plan.LayerPlan `json:"layers,omitempty"`

	Marks []string `json:"marks,omitempty"` // why a generation does not count
}

// Kind says how many changes are of one kind, over all nodes.
type Kind struct {
	Name    string `json:"name"`
	Changes int    `json:"changes"`
}

// Group is nodes that changed alike.
type Group struct {
	Class   string        `json:"class"` // what the changes disturb, see plan.NodePlan
	Why     string        `json:"why,omitempty"`
	Names   []string      `json:"names"` // the first of them
	Nodes   int           `json:"nodes"`
	Changes []plan.Change `json:"changes"`        // the first of them
	More    int           `json:"more,omitempty"` // changes that are not in it
}

// What a difference has of each at most: a page is to be read, and stays in memory.
const (
	maxGroups  = 20
	maxNames   = 30
	maxChanges = 100
	maxValue   = 400 // bytes of a value
)

// grouped returns a plan as a difference.
func grouped(from, to string, p *plan.Plan) *Difference {
	kinds := map[string]int{}
	d := &Difference{From: from, To: to, Kinds: []Kind{}, Groups: []Group{}, Layers: p.Layers[:min(len(p.Layers), maxGroups)],
		Marks: p.Marks}
	groups, _ := p.Groups()
	slices.SortStableFunc(groups, func(a, b *plan.Group) int { return len(b.Names) - len(a.Names) })
	for i, g := range groups {
		d.Nodes += len(g.Names)
		for _, c := range g.Changes {
			kinds[c.Item] += len(g.Names)
		}
		if i >= maxGroups {
			d.More += len(g.Names)
			continue
		}
		some := slices.Clone(g.Changes[:min(len(g.Changes), maxChanges)])
		for i := range some {
			some[i].From, some[i].To = plain.Cut(some[i].From, maxValue), plain.Cut(some[i].To, maxValue)
		}
		d.Groups = append(d.Groups, Group{g.Class, g.Why, slices.Clone(g.Names[:min(len(g.Names), maxNames)]), len(g.Names),
			some, len(g.Changes) - len(some)})
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		d.Kinds = append(d.Kinds, Kind{name, kinds[name]})
	}
	return d
}
