// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
)

func (a *app) retireCommand() *cobra.Command {
	var names []string
	var why changer
	var x changing
	c := &cobra.Command{
		Use:   "retire REF --node N… --key KEY",
		Short: "Remove nodes: tags, aliases, index rows",
		Long: "Remove nodes: tags, aliases, index rows.\n\n" +
			"A machine that asks finds nothing any more; one that runs goes on with what it has. Take the node out of\n" +
			"the site first, or the next publish makes it again. 'caisson prune' removes the layers that only it needed.\n\n" + trustHelp + "\n\n" + signerHelp,
		Example: "  caisson retire registry.example.org:5000/metal-a --site site.yaml --node oldhost --key keys/operator.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(names) == 0 {
				return cli.Usage("", "no node is named: give --node")
			}
			if len(x.whom.site) > 0 {
				s, err := a.loadNamed(x.whom.site...)
				if err != nil {
					return err
				}
				for _, name := range names {
					if s.Has(name) {
						return cli.Usage("take it out first: the next publish would make it again", "node %q is in the site", name)
					}
				}
			}
			p, err := x.publisher(a, args[0])
			if err != nil {
				return err
			}
			result, err := p.Retire(c.Context(), names, why.by())
			if err != nil {
				return err
			}
			return a.published(result, args[0])
		},
	}
	f := c.Flags()
	f.StringArrayVar(&names, "node", nil, "retire this node; several are possible")
	why.flags(f)
	x.flags(a, f)
	return c
}
