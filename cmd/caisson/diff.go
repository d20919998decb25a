// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/oci/keys"
)

func (a *app) diffCommand() *cobra.Command {
	var look looking
	var files bool
	var by []string
	c := &cobra.Command{
		Use:   "diff (LAYER LAYER | REF GEN GEN)",
		Short: "Compare two system layers, or two generations of a fleet",
		Long: "Compare two system layers, or two generations of a fleet.\n\n" +
			"Of layers it shows packages, kernel, accounts, profiles, sizes, what a node would fetch,\n" +
			"and with --files every file. Exit code 3: they differ. With --key, exit code 4: a layer is not\n" +
			"released by that key, and nothing is compared.\n\n" +
			"With REF and two generations, as 'caisson history' lists them, it shows what going from the first to the second\n" +
			"did to each node, and how much it disturbed it. This needs --site or --trust.\n\n" + layerHelp,
		Example: "  caisson diff oci:out@6 oci:out@7\n  caisson diff --files registry.example.org/metal@6 registry.example.org/metal\n" +
			"  caisson diff registry.example.org/metal 41 42 --site site.yaml",
		Args: cobra.RangeArgs(2, 3),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 3 && len(by) > 0:
				return errReleaseKey
			case len(args) == 2 && look.whom.said():
				return errOperators
			case len(args) == 3:
				return a.diffGenerations(c.Context(), &look, args[0], args[1], args[2])
			}
			from, err := openLayers(c.Context(), &look.reach, args[0])
			if err != nil {
				return err
			}
			to, err := openLayers(c.Context(), &look.reach, args[1])
			if err != nil {
				return err
			}
			if err := a.released(c.Context(), by, from, to); err != nil {
				return err
			}
			found, alone, err := release.Compare(c.Context(), from, to, files)
			if err != nil {
				return err
			}
			for _, variant := range alone {
				a.say("variant %s is in one of the two only", variant)
			}
			return cmp.Or(a.show(found, func() {
				for _, d := range found {
					d.Write(a.out)
				}
			}), drift(len(found) > 0))
		},
	}
	c.Flags().BoolVar(&files, "files", false, "compare every file; reads the images that differ")
	c.Flags().StringArrayVar(&by, "key", nil, releaseKeyHelp)
	look.flags(a, c.Flags())
	return c
}

// released refuses layers that none of the keys released; without keys it says
// that nobody was asked.
func (a *app) released(ctx context.Context, names []string, sets ...[]release.Layer) error {
	if len(names) == 0 {
		a.say(noKey)
		return nil
	}
	pubs, err := keys.Publics(names)
	if err != nil {
		return err
	}
	for _, l := range slices.Concat(sets...) {
		if err := l.Verify(ctx, pubs); err != nil {
			return err
		}
	}
	return nil
}

// diffGenerations prints what changed from one generation of a fleet to another.
func (a *app) diffGenerations(ctx context.Context, look *looking, ref, from, to string) error {
	fleet, err := look.open(ctx, a, ref)
	if err != nil {
		return err
	}
	g, err := fleet.Find(ctx, from)
	if err != nil {
		return err
	}
	h, err := fleet.Find(ctx, to)
	if err != nil {
		return err
	}
	found, err := history.Between(ctx, fleet, g, h)
	if err != nil {
		return err
	}
	return cmp.Or(a.show(found, func() { found.Write(a.out) }), drift(found.Changed()))
}
