// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/site/inventory"
)

func (a *app) explainCommand() *cobra.Command {
	var node string
	var labels []string
	c := &cobra.Command{
		Use:   "explain FILE… --node NAME",
		Short: "Show the settings of a node, with the origin of each value",
		Long: "Show the settings of a node, with the origin of each value.\n\n" +
			"At most one override of a module applies to a node: that of its host name, else the last label\n" +
			"entry that fits. The node need not exist: --label says what it would be.",
		Example: "  caisson explain site.yaml --node alpha\n  caisson explain values.yaml --node new --label role=db -o json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, names []string) error {
			set, err := parseLabels(labels)
			if err != nil {
				return err
			}
			if node == "" {
				return cli.Usage("name the node to explain", "--node is missing")
			}
			s, err := a.loadSite(names...)
			if err != nil {
				return err
			}
			e, err := s.Explain(node, set)
			if err != nil {
				return err
			}
			if !e.Known && len(set) == 0 && len(s.Nodes()) > 0 {
				a.say("warning: the site has no node %q: this is what it would get; %s", node, inventory.DidYouMean(node, s.Nodes()))
			}
			return a.show(e, func() { e.Write(a.out) })
		},
	}
	c.Flags().StringVar(&node, "node", "", "the node's name")
	c.Flags().StringVar(&node, "host", "", "the same as --node")
	c.Flags().StringArrayVar(&labels, "label", nil, "a label KEY=VALUE it has, over the site's; may be repeated")
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
