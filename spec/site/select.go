// SPDX-License-Identifier: Apache-2.0

package site

import (
	"slices"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/explain"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/waves"
)

// Groups returns what the site's nodes are named by.
func (s *Site) Groups() inventory.Groups {
	return inventory.Groups{Fleet: &s.fleet, NodeSets: plain.Each(s.maintenance.Sets, func(set maintenance.Set) inventory.NodeSet {
		return inventory.NodeSet{Name: set.Name, Has: set.Has}
	})}
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
