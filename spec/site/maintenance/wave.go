// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"slices"

	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// fewNodes may be in one wave of any fleet, whatever their share of it.
const fewNodes = 16

// checkNodes refuses a wave that names what no node of the rollout has, and one that is
// large because of a word that names no size: where a word is mistyped, it is the next wave
// that gets its nodes.
func (r Rollout) checkNodes(c *shape.Checker, nodes []inventory.Node) {
	mine, largest := r.of(nodes), 0
	if len(mine) == 0 {
		return // a part of a site
	}
	path := []string{"waves"}
	if r.strategy != nil {
		path = []string{"strategy", "order"}
		c.In("strategy", func() { r.checkBudget(c, mine) })
	}
	for i, w := range r.waves {
		c.Within(append(path, shape.Nth(i)), func() {
			if what, hint := w.nobody(mine); what != "" {
				c.Errorf(w.at, "nobody", hint, "no node of the rollout %s", what)
			}
		})
		if w.each != "" {
			values := map[string]int{}
			for _, n := range mine {
				if v, ok := n.Label(w.each); ok {
					values[v]++
					largest = max(largest, values[v])
				}
			}
		}
	}
	if r.strategy != nil {
		return // its budget bounds how many move at once
	}
	for _, w := range r.Divide(nodes) {
		size, at, what := len(w.Nodes), r.at, "the nodes that are in no wave"
		if w.term < len(r.waves) {
			term := r.waves[w.term]
			if term.rest || term.hosts == nil && term.set == nil {
				continue // its size is written
			}
			at, what = term.at, "the nodes of wave "+w.Name
		}
		if size > max(fewNodes, largest) && 4*size > len(nodes) {
			c.In("waves", func() {
				c.Errorf(at, "large-wave", "write rest: true where all of them are meant at once; percent, count and each make smaller waves",
					"%s are %d of %d at once", what, size, len(nodes))
			})
		}
	}
}

// nobody returns what a wave names that none of the nodes has, and a hint.
func (w wave) nobody(nodes []inventory.Node) (what, hint string) {
	for _, pattern := range w.hosts {
		if !slices.ContainsFunc(nodes, Set{hosts: []string{pattern}}.Has) {
			return "has the name " + pattern, inventory.DidYouMean(pattern, nodes)
		}
	}
	if w.set != nil && !slices.ContainsFunc(nodes, w.set.Has) {
		return "belongs to the NodeSet " + w.set.Name, w.set.whyNobody(nodes)
	}
	labelled := func(n inventory.Node) bool { _, ok := n.Label(w.each); return ok }
	if w.each != "" && !slices.ContainsFunc(nodes, labelled) {
		return "has the label " + w.each, inventory.LabelHint(w.each, "", nodes)
	}
	return "", ""
}
