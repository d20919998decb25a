// SPDX-License-Identifier: Apache-2.0

package site

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/explain"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/waves"
)

// Groups name nodes of a site: their labels, and NodeSets.
type Groups struct {
	fleet *inventory.Fleet
	sets  []maintenance.Set
}

// Groups returns what the site's nodes are named by.
func (s *Site) Groups() Groups { return Groups{&s.fleet, s.maintenance.Sets} }

// Sets returns the names of the site's NodeSets, sorted.
func (g Groups) Sets() []string {
	return append([]string{}, plain.Each(g.sets, func(set maintenance.Set) string { return set.Name })...)
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
	sets := g.sets
	i := slices.IndexFunc(sets, func(x maintenance.Set) bool { return x.Name == set })
	if set != "" && i < 0 {
		hint := "kind: NodeSet with that metadata.name is not among the site's documents"
		return nil, report.Invalidf(cmp.Or(report.DidYouMean(set, g.Sets()), hint), "the site has no node set %q", set)
	}
	if set != "" && !slices.ContainsFunc(g.fleet.Nodes, sets[i].Has) {
		return nil, report.Invalidf("'caisson explain FILE --node N' shows a node's labels", "node set %s has no node", set)
	}
	for _, l := range labels {
		key, value, ok := strings.Cut(l, "=")
		if !ok {
			return nil, report.Invalidf("as in role=compute", "%q is not a label with its value", l)
		}
		if !slices.ContainsFunc(g.fleet.Nodes, func(n inventory.Node) bool { return has(n, key, value) }) {
			return nil, report.Invalidf(g.otherLabel(l, key), "no node of the site has the label %s", plain.Line(l))
		}
	}
	var names []string
	for _, n := range g.fleet.Nodes {
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

func has(n inventory.Node, key, want string) bool {
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
	for _, n := range g.fleet.Nodes {
		for key, value := range n.Labels {
			all[key+"="+value] = true
		}
	}
	return plain.Names(maps.Keys(all))
}

// Where returns the labels of a node, each as KEY=VALUE, and the NodeSets that it
// belongs to, as Find takes them.
func (g Groups) Where(node string) (labels, sets []string) {
	n, ok := g.fleet.Get(node)
	if !ok {
		return nil, nil
	}
	labels = plain.Each(slices.Sorted(maps.Keys(n.Labels)), func(key string) string { return key + "=" + n.Labels[key] })
	return labels, plain.Pick(g.sets, func(set maintenance.Set) (string, bool) { return set.Name, set.Has(n) })
}

// MaxSearched is how many nodes a site may have whose settings a service searches: each takes a millisecond.
const MaxSearched = 1000

// Having returns the names of the nodes that have all settings, each as [explain.Where] has it. A
// setting, or a value, that no node has is an error. A site of more nodes than [MaxSearched] is not
// searched.
func (s *Site) Having(settings []string) ([]string, error) {
	if len(s.fleet.Nodes) > MaxSearched {
		return nil, report.Invalidf("'caisson explain SITE --where "+settings[0]+"' does",
			"a site of more than %d nodes is not searched by setting here", MaxSearched)
	}
	all, err := s.Explained()
	if err != nil {
		return nil, err
	}
	names, none, err := explain.All(settings, all)
	if none != "" {
		err = report.Invalidf("'caisson explain SITE --key KIND/KEY' lists who has what", "%s", none)
	}
	return names, err
}

// Explained explains every node.
func (s *Site) Explained() ([]*explain.Explanation, error) {
	list := make([]*explain.Explanation, 0, len(s.fleet.Nodes))
	for _, n := range s.fleet.Nodes {
		e, err := s.Explain(n.Name, nil)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// Against returns in what a node differs from another one.
func (s *Site) Against(node, other string) (_ explain.Differences, err error) {
	var both [2]*explain.Explanation
	for i, name := range []string{node, other} {
		if both[i], err = s.Explain(name, nil); err != nil {
			return nil, err
		}
	}
	return both[0].Against(both[1]), nil
}

// Uses returns the values that a setting has on the site's nodes.
func (s *Site) Uses(key string) (explain.Uses, error) {
	nodes, err := s.Explained()
	if err != nil {
		return nil, err
	}
	return explain.UsesOf(key, nodes)
}

// Where returns the nodes that meet every condition; none says which one no node at all meets.
func (s *Site) Where(conditions []string) (names []string, none string, err error) {
	nodes, err := s.Explained()
	if err != nil {
		return nil, "", err
	}
	return explain.All(conditions, nodes)
}

// Rollouts returns the site's Rollouts, as written.
func (s *Site) Rollouts() []waves.Rollout { return s.rollouts }

// Rollout returns the Rollout of a name, and what divides those of its nodes that are
// taken into waves.
func (s *Site) Rollout(name string) (r waves.Rollout, divide func(takes func(node string) bool) []waves.Wave, err error) {
	i := slices.IndexFunc(s.rollouts, func(one waves.Rollout) bool { return one.Name == name })
	if i < 0 {
		return r, nil, report.Invalidf("kind: Rollout with that metadata.name is not among the site's documents",
			"the site has no rollout %q", name)
	}
	r = s.rollouts[i]
	divide = func(takes func(string) bool) []waves.Wave {
		return r.Divide(slices.DeleteFunc(slices.Clone(s.fleet.Nodes), func(n inventory.Node) bool { return !takes(n.Name) }))
	}
	if len(r.Divide(s.fleet.Nodes)) == 0 {
		return r, nil, report.Invalidf("its nodes: are NodeSets, and none of them has a node", "rollout %s is for no node", name)
	}
	return r, divide, nil
}
