// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

func (a *app) operationsCommand() *cobra.Command {
	var node string
	c := &cobra.Command{
		Use:   "operations FILE… --node NAME",
		Short: "List scheduled operations",
		Long: "List scheduled operations of a node, with their ids, times and windows, as they would be\n" +
			"published now. A node remembers by the id what it has done.",
		Example: "  caisson operations site.yaml --node alpha -o json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, names []string) error {
			if node == "" {
				return cli.Usage("name the node", "--node is missing")
			}
			s, err := a.loadSite(names...)
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
				for _, o := range m.Operations {
					cli.Printf(a.out, "%s  %s\n  %s\n", o.Name, o.Type, strings.Join(o.Exec.Argv, " "))
					if o.From != "" {
						cli.Printf(a.out, "  from %s\n", o.From)
					}
					cli.Printf(a.out, "  in %s\n", cmp.Or(strings.Join(o.Windows, " or "), "no window: at any time"))
					for _, at := range o.Runs {
						cli.Printf(a.out, "  %s\n", at.Format(time.RFC3339))
					}
				}
				for _, r := range m.Realtime {
					cli.Printf(a.out, "%s  %s\n", r.Name, spec.RealtimeType)
					for _, k := range r.Keys {
						cli.Printf(a.out, "  %s %s\n", k.Item, rules.PolicyName(k.Item, k.Key))
					}
					if r.From != "" {
						cli.Printf(a.out, "  from %s\n", r.From)
					}
					cli.Printf(a.out, "  in %s\n", cmp.Or(strings.Join(r.Windows, " or "), "no window: at any time"))
				}
			})
		},
	}
	c.Flags().StringVar(&node, "node", "", "the node's name")
	return c
}
