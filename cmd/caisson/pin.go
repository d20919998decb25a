// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
)

func (a *app) pinCommand() *cobra.Command {
	var nodes []string
	var all bool
	var layer string
	var who signers
	var reach access
	var whom trustFlags
	var known memoryFlags
	c := &cobra.Command{
		Use:   "pin REF (--node N… | --all) --layer DIGEST --key KEY",
		Short: "Give nodes another layer, for example the one before",
		Long: "Give nodes another layer, for example the one before, and keep the rest of their overlays.\n\n" +
			"This is how one goes back: a newer generation that names an older layer. Nodes accept it, while\n" +
			"the old overlay itself stays refused as a replay. The next publish follows the site again.\n\n" + trustHelp + "\n\n" + signerHelp,
		Example: "  caisson pin registry.example.org:5000/metal-a --site site.yaml --node superhost --layer sha256:… --key keys/operator.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case all == (len(nodes) > 0):
				return cli.Usage("", "give either --node or --all")
			case layer == "":
				return cli.Usage("caisson prune REF --dry-run lists the layers", "no layer to pin: give --layer")
			}
			public, err := whom.operators(a)
			if err != nil {
				return err
			}
			by, err := who.load(a, public)
			if err != nil {
				return err
			}
			r, err := reach.existing(args[0])
			if err != nil {
				return err
			}
			p, err := a.publisher(r, by, &whom, known)
			if err != nil {
				return err
			}
			result, err := p.Pin(c.Context(), nodes, all, layer)
			if err != nil {
				return err
			}
			return a.published(result, args[0])
		},
	}
	f := c.Flags()
	f.StringArrayVar(&nodes, "node", nil, "pin this node; several are possible")
	f.BoolVar(&all, "all", false, "pin all nodes")
	f.StringVar(&layer, "layer", "", "the `DIGEST` of the layer's index or manifest, or a tag")
	who.flags(f)
	whom.flags(f)
	known.flags(f)
	reach.flags(a, f)
	return c
}
