// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
)

func (a *app) planCommand() *cobra.Command {
	var from string
	var only []string
	var reach access
	c := &cobra.Command{
		Use:   "plan FILE… --from REF",
		Short: "Say what publishing a site would change, node by node",
		Long: "Say what publishing a site would change, node by node: items added (+), changed (~) and removed (-),\n" +
			"layers to be built, and how much each node is disturbed: none, live, service restart, soft-reboot,\n" +
			"kexec or cold. Nothing is written. Signatures are not checked here: nodes do that.\n\n" +
			"Exit code 3: there is a change.",
		Example: "  caisson plan site.yaml --from registry.example.org:5000/metal-a\n  caisson plan site.yaml --from oci:./out --node alpha -o json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			s, err := a.loadSite(names...)
			if err != nil {
				return err
			}
			if from == "" {
				from = s.Registry()
			}
			pub, err := openPublished(from, &reach)
			if err != nil {
				return err
			}
			p, err := planSite(c.Context(), s, pub, only)
			if err != nil {
				return err
			}
			if a.json() {
				err = cli.JSON(a.out, p)
			} else {
				p.Write(a.out)
			}
			if err == nil && p.Changed() {
				err = cli.ErrDrift
			}
			return err
		},
	}
	c.Flags().StringVar(&from, "from", "", "where the site is published; the site's registry when absent")
	c.Flags().StringArrayVar(&only, "node", nil, "plan this node only; may be repeated")
	reach.flags(c.Flags())
	return c
}

// planSite reads overlays and compares them, a few at a time.
func planSite(ctx context.Context, s *site.Site, pub *published, only []string) (*plan.Plan, error) {
	var names []string
	for _, n := range s.Nodes() {
		if len(only) == 0 || slices.Contains(only, n.Name) {
			names = append(names, n.Name)
		}
	}
	for _, name := range only {
		if !slices.Contains(names, name) {
			_, err := s.Overlay(name, "")
			return nil, err
		}
	}
	var layerErr error
	p := plan.New(s, func(digest string) *spec.Layer {
		l, err := pub.layer(ctx, digest)
		if err != nil && !errors.Is(err, errUnreadable) {
			layerErr = errors.Join(layerErr, err)
		}
		return l
	})
	if err := pub.compare(ctx, names, p); err != nil {
		return nil, err
	}
	if len(only) == 0 {
		gone, err := pub.others(ctx, names)
		if err != nil {
			return nil, err
		}
		for _, name := range gone {
			p.Gone(name)
		}
	}
	return p.Plan(), layerErr
}
