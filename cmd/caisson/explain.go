// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/explain"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/maintenance"
)

func (a *app) explainCommand() *cobra.Command {
	var node, other, key string
	var labels, conditions []string
	c := verb("explain", func(_ *cobra.Command, names []string) error {
		set, err := parseLabels(labels)
		if err != nil {
			return err
		}
		switch all := key != "" || len(conditions) > 0; {
		case node == "" && !all:
			return cli.Usage("name the node to explain", "--node is missing")
		case all && node+other != "" || key != "" && len(conditions) > 0 || len(labels) > 0 && node == "" || other != "" && len(labels) > 0:
			return cli.Usage("--node with --label or --against, or --key, or --where", "these do not go together")
		}
		s, err := a.loadNamed(names...)
		switch {
		case err != nil:
			return err
		case key != "":
			return a.uses(s, key)
		case len(conditions) > 0:
			return a.where(s, conditions)
		case other != "":
			return a.against(s, node, other)
		}
		e, err := s.Explain(node, set)
		if err != nil {
			return err
		}
		if !e.Known && len(set) == 0 && len(s.Nodes()) > 0 {
			a.say("warning: the site has no node %q: this is what it would get; %s", node, inventory.DidYouMean(node, s.Nodes()))
		}
		return a.print(e)
	})
	c.Flags().StringVar(&node, "node", "", "the node's name")
	c.Flags().StringVar(&node, "host", "", "the same as --node")
	c.Flags().StringArrayVar(&labels, "label", nil, "a label KEY=VALUE it has, over the site's; may be repeated")
	c.Flags().StringVar(&other, "against", "", "show in what the node differs from the node with this `NAME`")
	c.Flags().StringVar(&key, "key", "", "list the values of the setting KIND/`KEY` on all nodes")
	c.Flags().StringArrayVar(&conditions, "where", nil,
		"list the nodes that have the setting KIND/KEY, or `KIND/KEY=VALUE`; several must all hold")
	return c
}

func parseLabels(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, l := range list {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, cli.Usage("write --label KEY=VALUE", "%q is not a label", l)
		}
		out[k] = v
	}
	return out, nil
}

func (a *app) windowsCommand() *cobra.Command {
	var from, until, node string
	c := verb("windows", func(_ *cobra.Command, names []string) error {
		now := time.Now()
		span := spec.Interval{From: now, To: maintenance.Horizon(now).To}
		if err := moment(&span.From, "--from", from); err != nil {
			return err
		}
		if from != "" {
			span.To = maintenance.Horizon(span.From).To
		}
		if err := moment(&span.To, "--until", until); err != nil {
			return err
		}
		if !span.From.Before(span.To) || span.To.Sub(span.From) > maxSpan {
			return cli.Usage("at most two years later", "--until must be after --from")
		}
		s, err := a.loadNamed(names...)
		if err != nil {
			return err
		}
		m := s.Maintenance()
		if node != "" {
			if m, err = s.MaintenanceOf(node); err != nil {
				return err
			}
		}
		o := m.Openings(span)
		return a.show(o, func() {
			if len(o.Windows) == 0 {
				a.say("there is no MaintenanceWindow")
			}
			_ = o.Write(a.out) // the verb ends with what its output could not take
		})
	})
	c.Flags().StringVar(&node, "node", "", "only windows that this node waits for")
	c.Flags().StringVar(&from, "from", "", "from when on; now when absent")
	c.Flags().StringVar(&until, "until", "", "until when; the first of the fourth month after when absent")
	return c
}

const maxSpan = 2 * 366 * 24 * time.Hour

// moment reads a time of the command line, if it was given.
func moment(into *time.Time, flag, text string) error {
	if text == "" {
		return nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			*into = t
			return nil
		}
	}
	return cli.Usage("as in 2026-11-21 or 2026-11-21T22:00:00Z", "%s: %q is not a time", flag, text)
}

func (a *app) operationsCommand() *cobra.Command {
	var node string
	c := verb("operations", func(_ *cobra.Command, names []string) error {
		if node == "" {
			return cli.Usage("name the node", "--node is missing")
		}
		s, err := a.loadNamed(names...)
		if err != nil {
			return err
		}
		o, err := s.Overlay(node, "")
		if err != nil {
			return err
		}
		m := spec.Maintenance{Operations: []spec.Operation{}}
		if o.Maintenance != nil {
			m = *o.Maintenance
		}
		return a.show(m, func() {
			if len(m.Operations)+len(m.Realtime) == 0 {
				a.say("%s has no operations", node)
			}
			maintenance.WriteOperations(a.out, m)
		})
	})
	c.Flags().StringVar(&node, "node", "", "the node's name")
	return c
}

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
	return cmp.Or(a.show(found, func() {
		found.Write(a.out, node, other)
		if len(found) == 0 {
			a.say("%s and %s have the same settings", node, other)
		}
	}), drift(len(found) > 0))
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
	return a.print(found)
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
