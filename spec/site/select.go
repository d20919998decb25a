// SPDX-License-Identifier: Apache-2.0

package site

import (
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Sets returns the names of the site's NodeSets, sorted.
func (s *Site) Sets() []string {
	names := []string{}
	for _, set := range s.maintenance.Sets {
		names = append(names, set.Name)
	}
	return names
}

// Select is Find for what acts on nodes. None at all is an error: it is a typing mistake
// more often than it is meant.
func (s *Site) Select(labels []string, set string) ([]string, error) {
	names, err := s.Find(labels, set)
	if err == nil && names == nil {
		return nil, report.Invalidf("'caisson explain FILE --node N' shows a node's labels", "no node of the site is meant")
	}
	return names, err
}

// Find returns the names of the nodes that have all labels, each as KEY=VALUE, and
// belong to the NodeSet when one is named.
func (s *Site) Find(labels []string, set string) ([]string, error) {
	sets := s.maintenance.Sets
	i := slices.IndexFunc(sets, func(x maintenance.Set) bool { return x.Name == set })
	if set != "" && i < 0 {
		return nil, report.Invalidf("kind: NodeSet with that metadata.name is not among the site's documents", "the site has no node set %q", set)
	}
	for _, l := range labels {
		if !strings.Contains(l, "=") {
			return nil, report.Invalidf("as in role=compute", "%q is not a label with its value", l)
		}
	}
	var names []string
	for _, n := range s.nodes {
		lacks := func(l string) bool {
			key, want, _ := strings.Cut(l, "=")
			got, ok := n.Label(key)
			return !ok || got != want
		}
		if !slices.ContainsFunc(labels, lacks) && (set == "" || sets[i].Has(n)) {
			names = append(names, n.Name)
		}
	}
	return names, nil
}

// Labels returns each label that some node has, as KEY=VALUE, sorted.
func (s *Site) Labels() []string {
	all := map[string]bool{}
	for _, n := range s.nodes {
		for key, value := range n.Labels {
			all[key+"="+value] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Where returns the labels of a node, each as KEY=VALUE, and the NodeSets that it
// belongs to, as Select takes them.
func (s *Site) Where(node string) (labels, sets []string) {
	i := slices.IndexFunc(s.nodes, func(n inventory.Node) bool { return n.Name == node })
	if i < 0 {
		return nil, nil
	}
	for _, key := range slices.Sorted(maps.Keys(s.nodes[i].Labels)) {
		labels = append(labels, key+"="+s.nodes[i].Labels[key])
	}
	for _, set := range s.maintenance.Sets {
		if set.Has(s.nodes[i]) {
			sets = append(sets, set.Name)
		}
	}
	return labels, sets
}

// Rollout returns the Rollout of a name, and what divides those of its nodes that are
// taken into waves.
func (s *Site) Rollout(name string) (r maintenance.Rollout, divide func(takes func(node string) bool) []maintenance.Wave, err error) {
	r, ok := s.maintenance.Rollout(name)
	if !ok {
		return r, nil, report.Invalidf("kind: Rollout with that metadata.name is not among the site's documents", "the site has no rollout %q", name)
	}
	divide = func(takes func(string) bool) []maintenance.Wave {
		return r.Divide(slices.DeleteFunc(slices.Clone(s.nodes), func(n inventory.Node) bool { return !takes(n.Name) }))
	}
	if len(r.Divide(s.nodes)) == 0 {
		return r, nil, report.Invalidf("its nodes: are NodeSets, and none of them has a node", "rollout %s is for no node", name)
	}
	return r, divide, nil
}
