// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/publish"
)

func (a *app) refreshCommand() *cobra.Command {
	var lists publish.Lists
	var who signers
	var reach access
	c := &cobra.Command{
		Use:   "refresh REF --key KEY",
		Short: "Sign anew what grows old; run it daily",
		Long: "Sign anew what grows old: fleet:current, which is fresh for three days, and overlays whose\n" +
			"signature has used up two thirds of its life. No content changes and no generation is taken.\n" +
			"Run it daily. --reject puts a layer or an overlay on the list that no node runs.\n\n" + signerHelp,
		Example: "  caisson refresh registry.example.org:5000/metal-a --key keys/operator.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			by, err := who.load()
			if err != nil {
				return err
			}
			r, err := reach.existing(args[0])
			if err != nil {
				return err
			}
			result, err := a.publisher(r, by).Refresh(c.Context(), lists)
			if err != nil {
				return err
			}
			return a.published(result, args[0])
		},
	}
	f := c.Flags()
	f.StringArrayVar(&lists.Reject, "reject", nil, "put the `DIGEST` of a layer's manifest or an overlay on the reject list")
	f.StringArrayVar(&lists.Allow, "allow", nil, "take the `DIGEST` off the reject list")
	who.flags(f)
	reach.flags(f)
	return c
}
