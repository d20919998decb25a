// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Groups name nodes of a site: their labels, and NodeSets.
type Groups struct {
	Fleet    *Fleet
	NodeSets []NodeSet // by name
}

// NodeSet is a NodeSet of the site, and which nodes it has.
type NodeSet struct {
	Name string
	Has  func(Node) bool
}

// Sets returns the names of the site's NodeSets, sorted.
func (g Groups) Sets() []string {
	return append([]string{}, plain.Each(g.NodeSets, func(set NodeSet) string { return set.Name })...)
}

// Select is Find for what acts on nodes. None at all is an error: it is a typing mistake
// more often than it is meant.
func (g Groups) Select(labels []string, set string) ([]string, error) {
	names, err := g.Find(labels, set)
	if err == nil && names == nil {
		return nil, report.Invalidf("'caisson explain FILE --node N' shows a node's labels", "no node of the site matches")
	}
	return names, err
}

// Find returns the names of the nodes that have all labels, each as KEY=VALUE, and
// belong to the NodeSet when one is named. A label or a set that no node of the site has is
// an error; that none has all of them is not.
func (g Groups) Find(labels []string, set string) ([]string, error) {
	sets := g.NodeSets
	i := slices.IndexFunc(sets, func(x NodeSet) bool { return x.Name == set })
	if set != "" && i < 0 {
		hint := "kind: NodeSet with that metadata.name is not among the site's documents"
		return nil, report.Invalidf(cmp.Or(report.DidYouMean(set, g.Sets()), hint), "the site has no node set %q", set)
	}
	if set != "" && !slices.ContainsFunc(g.Fleet.Nodes, sets[i].Has) {
		return nil, report.Invalidf("'caisson explain FILE --node N' shows a node's labels", "node set %s has no node", set)
	}
	for _, l := range labels {
		key, value, ok := strings.Cut(l, "=")
		if !ok {
			return nil, report.Invalidf("as in role=compute", "%q is not a label with its value", l)
		}
		if !slices.ContainsFunc(g.Fleet.Nodes, func(n Node) bool { return has(n, key, value) }) {
			return nil, report.Invalidf(g.otherLabel(l, key), "no node of the site has the label %s", plain.Line(l))
		}
	}
	var names []string
	for _, n := range g.Fleet.Nodes {
		lacks := func(l string) bool {
			key, want, _ := strings.Cut(l, "=")
			return !has(n, key, want)
		}
		if !slices.ContainsFunc(labels, lacks) && (set == "" || sets[i].Has(n)) {
			names = append(names, n.Name)
		}
	}
	return names, nil
}

func has(n Node, key, want string) bool {
	got, ok := n.Label(key)
	return ok && got == want
}

// otherLabel says which labels there are in place of one that no node has: the nearest, or
// some with its key, or some keys.
func (g Groups) otherLabel(label, key string) string {
	all := g.Labels()
	if like := report.DidYouMean(label, all); like != "" {
		return like
	}
	const most = 8
	var of []string
	keys := map[string]bool{}
	for _, l := range all {
		k, _, _ := strings.Cut(l, "=")
		if keys[k] = true; k == key {
			of = append(of, l)
		}
	}
	says := "there are "
	if of == nil {
		says, of = "keys of labels are ", plain.Names(maps.Keys(keys))
	}
	if len(of) == 0 {
		return "no node of the site has any label"
	}
	more := ""
	if len(of) > most {
		more = ", …"
	}
	return says + strings.Join(of[:min(most, len(of))], ", ") + more
}

// Labels returns each label that some node has, as KEY=VALUE, in the order of people.
func (g Groups) Labels() []string {
	all := map[string]bool{}
	for _, n := range g.Fleet.Nodes {
		for key, value := range n.Labels {
			all[key+"="+value] = true
		}
	}
	return plain.Names(maps.Keys(all))
}

// Where returns the labels of a node, each as KEY=VALUE, and the NodeSets that it
// belongs to, as Find takes them.
func (g Groups) Where(node string) (labels, sets []string) {
	n, ok := g.Fleet.Get(node)
	if !ok {
		return nil, nil
	}
	labels = plain.Each(slices.Sorted(maps.Keys(n.Labels)), func(key string) string { return key + "=" + n.Labels[key] })
	return labels, plain.Pick(g.NodeSets, func(set NodeSet) (string, bool) { return set.Name, set.Has(n) })
}
