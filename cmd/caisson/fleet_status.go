// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
)

func (a *app) fleetStatusCommand() *cobra.Command {
	var x storedReports
	q := url.Values{} // as GET /v1/nodes has it
	var labels, settings []string
	c := verb("fleet status", func(c *cobra.Command, args []string) error {
		for name, field := range listFilters {
			if f := c.Flags().Lookup(name); f.Changed {
				if f.Value.String() == "" {
					return cli.Usage("leave it out to list all", "--%s is empty", name)
				}
				q.Set(field.name, f.Value.String())
			}
		}
		for name, words := range map[string][]string{"label": labels, "setting": settings} {
			if len(words) > 0 {
				q[name] = words
			}
		}
		if len(args) == 1 && len(q) > 0 {
			return cli.Usage("a node is shown by itself, or some are listed", "NODE and a flag that lists nodes do not go together")
		}
		return a.fleetShown(c.Context(), &x, func(of shown) error {
			switch {
			case len(args) == 1:
				return a.nodeStatus(c.Context(), of, args[0])
			case len(q) > 0:
				return a.listStatus(c.Context(), of, q, x.limit)
			}
			return a.summaryStatus(c.Context(), of)
		})
	})
	for name, field := range listFilters {
		c.Flags().String(name, "", field.says)
	}
	c.Flags().StringArrayVar(&labels, "label", nil, "list the nodes with the label `KEY=VALUE`; several must all hold")
	c.Flags().StringArrayVar(&settings, "setting", nil,
		"list the nodes that have `KIND/KEY`, or KIND/KEY=VALUE, as in 'caisson explain --where'; several must all hold")
	x.flags(a, c.Flags())
	return c
}

// listFilters are the flags that choose nodes by one word, or sort them, with their names
// in GET /v1/nodes.
var listFilters = map[string]struct{ name, says string }{
	"condition": {"condition", "list the nodes in this condition: " + strings.Join(view.ConditionWords(), ", ")},
	"search":    {"q", "list the nodes with this `TEXT` in the name or in what is wrong"},
	"set":       {"set", "list the nodes of the NodeSet `NAME`"},
	"layer":     {"layer", "list the nodes that run the layer with this `DIGEST`, or one that begins so"},
	"version":   {"version", "list the nodes that run a layer of this `VERSION`"},
	"health":    {"health", "list the nodes whose health is this `STATE`: ok, degraded, broken, quarantined"},
	"sync":      {"sync", "list the nodes whose sync is this `STATE`, as in refused or refused:expired"},
	"service":   {"service", "list the nodes that report the service `NAME`"},
	"commit":    {"commit", "with --service: list those that report this `COMMIT`"},
	"sort": {"sort", "list the nodes sorted by `WHAT`: condition (the worst first, as without it), name, " +
		"generation, layer, reported; -name begins at the other end"},
}

// fleetStatus is the output of fleet status -o json: the fleet, or some nodes, or one.
type fleetStatus struct {
	Summary *query.Summary `json:"summary,omitempty"`
	Nodes   []view.Line    `json:"nodes,omitzero"` // of a list, also an empty one
	Note    string         `json:"note,omitempty"` // which word no node at all meets, though one could
	Node    *query.Node    `json:"node,omitempty"`
}

func (a *app) summaryStatus(ctx context.Context, of shown) error {
	s, err := of.Summary(ctx)
	if err != nil {
		return err
	}
	trouble := s.Trouble > 0 || s.IndexTrouble+s.DatabaseTrouble+s.SiteTrouble+s.InboxTrouble != ""
	return cmp.Or(a.show(fleetStatus{Summary: &s}, func() { s.Write(a.out) }), drift(trouble))
}

func (a *app) listStatus(ctx context.Context, of shown, q url.Values, limit int) error {
	l, err := of.Nodes(ctx, q)
	if err != nil {
		return err
	}
	err = a.show(fleetStatus{Nodes: append([]view.Line{}, l.Nodes...), Note: l.Note}, func() { l.Write(a.out, limit) })
	switch {
	case l.Note != "":
		a.say("%s", l.Note)
	case len(l.Nodes) == 0:
		a.say("no node matches")
	}
	return cmp.Or(err, drift(slices.ContainsFunc(l.Nodes, func(l view.Line) bool { return view.KindOf(l.Condition).Trouble })))
}

// usualLimit is how many nodes people are shown at a time.
const usualLimit = 1000

// nodeStatus shows all that is known of a node.
func (a *app) nodeStatus(ctx context.Context, of shown, name string) error {
	n, err := of.Node(ctx, name)
	if err != nil {
		return err
	}
	return cmp.Or(a.show(fleetStatus{Node: &n}, func() { n.Write(a.out) }), drift(view.KindOf(n.Condition).Trouble))
}
