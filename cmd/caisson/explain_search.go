// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	nodes, err := s.Explained()
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
	nodes, err := s.Explained()
	if err != nil {
		return err
	}
	all, none, err := explain.All(conditions, nodes)
	if err != nil {
		return err
	}
	if none != "" {
		a.say("%s", none)
	}
	return a.show(all, func() {
		for _, name := range all {
			cli.Printf(a.out, "%s\n", name)
		}
	})
}
