// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	"github.com/caisson-os/caisson/spec/site/report"
)

// Fleet holds the machines of a site, found by name.
type Fleet struct {
	Nodes []Node // in the order of the input

	// Left are the nodes of a cluster whose identity is in doubt, in order of their names.
	// They are not among Nodes, and what is published for them stays.
	Left []LeftOut

	byName map[string]int
}

// NewFleet returns a fleet of nodes whose names [Check] or [Join] found unique.
func NewFleet(nodes []Node, left []LeftOut) Fleet {
	f := Fleet{Nodes: nodes, Left: left, byName: make(map[string]int, len(nodes))}
	for i, n := range nodes {
		f.byName[n.Name] = i
	}
	return f
}

// Names returns the names of all nodes, in the order of the input.
func (f *Fleet) Names() (names []string) {
	for _, n := range f.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// Get returns the node of a name, and whether there is one; else a node without name and labels.
func (f *Fleet) Get(name string) (Node, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Node{}, false
	}
	return f.Nodes[i], true
}

// Node is [Fleet.Get] for a name that somebody wrote: the error of one that no node has says
// which is near.
func (f *Fleet) Node(name string) (Node, error) {
	n, ok := f.Get(name)
	if !ok {
		return n, report.Invalidf(DidYouMean(name, f.Nodes), "the site has no node %q", name)
	}
	return n, nil
}

// Has reports whether the fleet has a node of that name.
func (f *Fleet) Has(name string) bool {
	_, ok := f.byName[name]
	return ok
}

// WhyLeftOut says why a node is left out, "" where it is not.
func (f *Fleet) WhyLeftOut(name string) string {
	i := slices.IndexFunc(f.Left, func(l LeftOut) bool { return l.Name == name })
	if i < 0 {
		return ""
	}
	return f.Left[i].Why
}
