// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/publish"
)

func (a *app) refreshCommand() *cobra.Command {
	var lists publish.Lists
	var reject []string
	var x changing
	c := &cobra.Command{
		Use:   "refresh REF --key KEY",
		Short: "Renew expiring signatures; run daily",
		Long: "Renew expiring signatures: that of fleet:current, which is valid for three days, and of overlays\n" +
			"when two thirds of their signature's life are over. No content changes and no generation is taken,\n" +
			"but after a publish that was cut: nodes that it had moved get again what they had before, and those that a\n" +
			"rollout had moved keep what it gave them.\n" +
			"Run it daily. --reject puts a layer, an overlay or all that a generation gave to nodes on the list of what no\n" +
			"node runs; what nodes had by another generation, too, is not among it.\n\n" + trustHelp + "\n\n" + signerHelp,
		Example: "  caisson refresh registry.example.org:5000/metal-a --site site.yaml --key keys/operator.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			for _, one := range reject {
				if strings.Contains(one, ":") {
					lists.Reject = append(lists.Reject, one)
				} else {
					lists.Given = append(lists.Given, one)
				}
			}
			p, err := x.publisher(a, args[0])
			if err != nil {
				return err
			}
			result, err := p.Refresh(c.Context(), lists)
			if err != nil {
				return err
			}
			return a.published(result, args[0])
		},
	}
	f := c.Flags()
	f.StringArrayVar(&reject, "reject", nil, "put the `DIGEST` of a layer's manifest or an overlay on the reject list, or every overlay that a generation gave to nodes, as in 0-16")
	f.BoolVar(&lists.Unseen, "yes", false, "reject also a digest that no node has and the registry has not")
	f.StringArrayVar(&lists.Allow, "allow", nil, "take the `DIGEST` off the reject list")
	x.flags(a, f)
	return c
}
