// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/release"
)

func (a *app) pruneCommand() *cobra.Command {
	var reach access
	var whom trustFlags
	var known memoryFlags
	var keep int
	var dry bool
	c := &cobra.Command{
		Use:   "prune REF",
		Short: "Remove layers that no node needs",
		Long: "Remove layers that no node needs: all but the --keep versions released last, the current one, and\n" +
			"those that a published overlay or fleet:index names. Nobody publishes meanwhile. With --site or\n" +
			"--trust what is published is verified first; without, nothing is, and that is said. A registry\n" +
			"server frees the space when it collects garbage; in a layout, blobs that nothing leads to go once\n" +
			"they are an hour old.",
		Example: "  caisson prune oci:out --keep 5 --dry-run",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if keep < 1 {
				return cli.Usage("at least 1", "--keep %d", keep)
			}
			reg, err := reach.existing(args[0])
			if err != nil {
				return err
			}
			p, err := a.publisher(reg, nil, &whom, memoryFlags{remember: known.remember})
			if err != nil {
				return err
			}
			out, err := p.Prune(c.Context(), keep, dry)
			if err != nil {
				return err
			}
			return a.printPruned(out)
		},
	}
	c.Flags().IntVar(&keep, "keep", 3, "number of versions to keep, by when they were released")
	c.Flags().BoolVarP(&dry, "dry-run", "n", false, "only print what would be removed")
	whom.flags(c.Flags())
	c.Flags().StringVar(&known.remember, "remember", "", "`FILE` that remembers what was published (caisson.memory beside the site when empty)")
	reach.flags(a, c.Flags())
	return c
}

func (a *app) printPruned(out *release.Pruned) error {
	if a.json() {
		return cli.JSON(a.out, out)
	}
	gone := 0
	for _, l := range out.Layers {
		verdict := "keep: " + l.Keep
		if l.Keep == "" {
			verdict = "remove"
			gone++
		}
		cli.Printf(a.out, "%s  %s %s  %s\n", l.Digest, l.Version, l.Variant, verdict)
	}
	if out.Removed {
		a.say("removed %s, freed %s", count(gone, "layer"), signless(out.Freed))
	} else {
		a.say("would remove %s", count(gone, "layer"))
	}
	return nil
}
