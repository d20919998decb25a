// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/explain"
	"github.com/caisson-os/caisson/spec/site/inventory"
)

// against prints in what a node differs from another one.
func (a *app) against(s *site.Site, node, other string) error {
	var both [2]*explain.Explanation
	for i, name := range []string{node, other} {
		e, err := s.Explain(name, nil)
		if err != nil {
			return err
		}
		if !e.Known {
			return cli.Usage(inventory.DidYouMean(name, s.Nodes()), "the site has no node %q", name)
		}
		both[i] = e
	}
	found := both[0].Against(both[1])
	if err := a.show(found, func() {
		found.Write(a.out, node, other)
		if len(found) == 0 {
			a.say("%s and %s have the same settings", node, other)
		}
	}); err != nil {
		return err
	}
	return drift(len(found) > 0)
}

// uses prints the values that a setting has on the site's nodes.
func (a *app) uses(s *site.Site, key string) error {
	nodes, err := everyNode(s)
	if err != nil {
		return err
	}
	found, err := explain.UsesOf(key, nodes)
	if err != nil {
		return err
	}
	return a.show(found, func() { found.Write(a.out) })
}

// where prints the nodes that meet every condition.
func (a *app) where(s *site.Site, conditions []string) error {
	nodes, err := everyNode(s)
	if err != nil {
		return err
	}
	all, met := []string{}, map[string]int{} // how many conditions each node meets
	for _, c := range conditions {
		names, others, err := explain.Where(c, nodes)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			a.say("no node has %s; there is: %s", c, strings.Join(others, ", "))
		}
		for _, name := range names {
			if met[name]++; met[name] == len(conditions) {
				all = append(all, name)
			}
		}
	}
	return a.show(all, func() {
		for _, name := range all {
			cli.Printf(a.out, "%s\n", name)
		}
	})
}

func everyNode(s *site.Site) ([]*explain.Explanation, error) {
	var list []*explain.Explanation
	for _, n := range s.Nodes() {
		e, err := s.Explain(n.Name, nil)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}
