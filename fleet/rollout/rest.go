// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"maps"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// rest is what is left of a budget: it counts how many nodes may be unavailable at once, of each
// group, a rack for example, and of all. It knows who is unavailable and why, and not how that is
// found out. A node that is unavailable already costs nothing more; one of which that is only assumed
// counts, and costs what an available one does.
type rest struct {
	of      *spec.RolloutBudget
	reasons map[string]string   // by node that is unavailable
	assumed map[string]bool     // of these: it may be available all the same
	groups  map[string][]string // unavailable nodes of each
	all     []string            // unavailable nodes
}

// newRest counts the unavailable nodes of a budget, with why each is, and of which that is only
// assumed. Others do no harm.
func newRest(of *spec.RolloutBudget, unavailable map[string]string, assumed map[string]bool) *rest {
	r := &rest{of: of, reasons: map[string]string{}, assumed: assumed, groups: map[string][]string{}}
	for _, node := range plain.Names(maps.Keys(unavailable)) {
		if _, counts := of.Nodes[node]; counts {
			r.add(node, unavailable[node])
		}
	}
	return r
}

func (r *rest) add(node, why string) {
	group := r.of.Nodes[node]
	r.reasons[node] = why
	r.groups[group] = append(r.groups[group], node)
	r.all = append(r.all, node)
}

// full says why a node may not become unavailable, "" where it may, or is.
func (r *rest) full(node string) string {
	group, counts := r.of.Nodes[node]
	_, is := r.reasons[node]
	itself := 0
	if is {
		itself = 1
	}
	switch {
	case is && !r.assumed[node] || !counts:
		return ""
	case r.of.Each > 0 && len(r.groups[group])-itself >= r.of.Each:
		return fmt.Sprintf("%s: %d unavailable, %d may be: %s", r.group(node), len(r.groups[group]), r.of.Each, r.some(r.groups[group]))
	case r.of.Overall > 0 && len(r.all)-itself >= r.of.Overall:
		return fmt.Sprintf("%d of all nodes unavailable, %d may be: %s", len(r.all), r.of.Overall, r.some(r.all))
	}
	return ""
}

// take makes a node unavailable where the budget allows it; else it says why not.
func (r *rest) take(node, reason string) (full string) {
	if full = r.full(node); full != "" {
		return full
	}
	if r.assumed[node] {
		r.assumed = maps.Clone(r.assumed)
		delete(r.assumed, node) // it is from now on
	}
	if _, is := r.reasons[node]; !is {
		r.add(node, reason)
	}
	return ""
}

// unavailable reports whether it is certain that a node is.
func (r *rest) unavailable(node string) bool { return r.reasons[node] != "" && !r.assumed[node] }

// group names the group of a node, as in "rack r1".
func (r *rest) group(node string) string { return r.of.Per + " " + r.of.Nodes[node] }

func (r *rest) some(nodes []string) string {
	text := ""
	for i, name := range nodes[:min(shown, len(nodes))] {
		if i > 0 {
			text += ", "
		}
		text += name + " (" + r.reasons[name] + ")"
	}
	if more := len(nodes) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// atOnce is how many of so many nodes of a group a budget lets be unavailable at once.
func atOnce(of *spec.RolloutBudget, size int) int {
	for _, bound := range []int{of.Each, of.Overall} {
		if bound > 0 {
			size = min(size, bound)
		}
	}
	return size
}

// groupSizes returns how many nodes each group of a budget has.
func groupSizes(of *spec.RolloutBudget) map[string]int {
	sizes := map[string]int{}
	for _, group := range of.Nodes {
		sizes[group]++
	}
	return sizes
}
