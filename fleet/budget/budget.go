// SPDX-License-Identifier: Apache-2.0

// Package budget counts how many nodes of a fleet may be unavailable at once: of each
// group, a rack for example, and of all.
//
// It knows who is unavailable and why, and not how that is found out: fleet/rollout counts
// what reports and rollouts say, fleet/hub asks before it gives out a slot. A node that is
// unavailable already costs nothing more; one of which that is only assumed counts, and costs what
// an available one does.
package budget

import (
	"fmt"
	"maps"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Count holds the rest of a budget.
type Count struct {
	of      *spec.RolloutBudget
	reasons map[string]string   // by node that is unavailable
	assumed map[string]bool     // of these: it may be available all the same
	groups  map[string][]string // unavailable nodes of each
	all     []string            // unavailable nodes
}

// New counts the unavailable nodes of a budget, with why each is, and of which that is only
// assumed. Others do no harm.
func New(of *spec.RolloutBudget, unavailable map[string]string, assumed map[string]bool) *Count {
	c := &Count{of: of, reasons: map[string]string{}, assumed: assumed, groups: map[string][]string{}}
	for _, node := range plain.Names(maps.Keys(unavailable)) {
		if _, counts := of.Nodes[node]; counts {
			c.add(node, unavailable[node])
		}
	}
	return c
}

func (c *Count) add(node, why string) {
	group := c.of.Nodes[node]
	c.reasons[node] = why
	c.groups[group] = append(c.groups[group], node)
	c.all = append(c.all, node)
}

// Full says why a node may not become unavailable, "" where it may, or is.
func (c *Count) Full(node string) string {
	group, counts := c.of.Nodes[node]
	_, is := c.reasons[node]
	itself := 0
	if is {
		itself = 1
	}
	switch {
	case is && !c.assumed[node] || !counts:
		return ""
	case c.of.Each > 0 && len(c.groups[group])-itself >= c.of.Each:
		return fmt.Sprintf("%s: %d unavailable, %d may be: %s", c.Group(node), len(c.groups[group]), c.of.Each, c.some(c.groups[group]))
	case c.of.Overall > 0 && len(c.all)-itself >= c.of.Overall:
		return fmt.Sprintf("%d of all nodes unavailable, %d may be: %s", len(c.all), c.of.Overall, c.some(c.all))
	}
	return ""
}

// Take makes a node unavailable where the budget allows it; else it says why not.
func (c *Count) Take(node, reason string) (full string) {
	if full = c.Full(node); full != "" {
		return full
	}
	if c.assumed[node] {
		c.assumed = maps.Clone(c.assumed)
		delete(c.assumed, node) // it is from now on
	}
	if _, is := c.reasons[node]; !is {
		c.add(node, reason)
	}
	return ""
}

// Unavailable reports whether it is certain that a node is.
func (c *Count) Unavailable(node string) bool { return c.reasons[node] != "" && !c.assumed[node] }

// Group names the group of a node, as in "rack r1".
func (c *Count) Group(node string) string { return c.of.Per + " " + c.of.Nodes[node] }

// shown is how many nodes a text names.
const shown = 3

func (c *Count) some(nodes []string) string {
	text := ""
	for i, name := range nodes[:min(shown, len(nodes))] {
		if i > 0 {
			text += ", "
		}
		text += name + " (" + c.reasons[name] + ")"
	}
	if more := len(nodes) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Sizes returns how many nodes each group has.
func Sizes(of *spec.RolloutBudget) map[string]int {
	sizes := map[string]int{}
	for _, group := range of.Nodes {
		sizes[group]++
	}
	return sizes
}

// AtOnce is how many of so many nodes of a group a budget lets be unavailable at once.
func AtOnce(of *spec.RolloutBudget, size int) int {
	for _, bound := range []int{of.Each, of.Overall} {
		if bound > 0 {
			size = min(size, bound)
		}
	}
	return size
}
