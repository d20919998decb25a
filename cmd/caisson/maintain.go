// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
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
			return a.published(args[0], result, err)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&reject, "reject", nil, "put the `DIGEST` of a layer's manifest or an overlay on the reject list, or every overlay that a generation gave to nodes, as in 0-16")
	f.BoolVar(&lists.Unseen, "yes", false, "reject also a digest that no node has and the registry has not")
	f.StringArrayVar(&lists.Allow, "allow", nil, "take the `DIGEST` off the reject list")
	x.flags(a, f)
	return c
}

func (a *app) retireCommand() *cobra.Command {
	var names []string
	var why changer
	var x changing
	c := &cobra.Command{
		Use:   "retire REF --node N… --key KEY",
		Short: "Remove nodes: tags, aliases, index rows",
		Long: "Remove nodes: tags, aliases, index rows.\n\n" +
			"A machine that asks finds nothing any more; one that runs goes on with what it has. Take the node out of\n" +
			"the site first, or the next publish makes it again. 'caisson prune' removes the layers that only it needed.\n\n" +
			trustHelp + "\n\n" + signerHelp,
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
			return a.published(args[0], result, err)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&names, "node", nil, "retire this node; several are possible")
	why.flags(f)
	x.flags(a, f)
	return c
}

func (a *app) pruneCommand() *cobra.Command {
	var look looking
	var keep publish.Keep
	var dry bool
	c := &cobra.Command{
		Use:   "prune REF",
		Short: "Remove old generations and unused layers",
		Long: "Remove old generations, layers and images of services that no node needs, and loaders that fleet:current does not name.\n\n" +
			"The newest --generations that changed what any node has stay with all that they need, and those between, so\n" +
			"that one can go back to them. Of layers stay the --keep versions released last, the current one, and what a\n" +
			"node runs, ran before or is held at.\n" +
			"With --site or --trust what is published is verified first, and other publishers are kept out. Without\n" +
			"them nothing is verified, with a warning, and old generations stay on a registry server: do not publish during\n" +
			"such a prune. A registry server frees the space when it collects garbage;\n" +
			"in a layout, blobs that nothing leads to go once they are an hour old.",
		Example: "  caisson prune oci:out --keep 5 --dry-run",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if keep.Versions < 1 || keep.Generations < 1 {
				return cli.Usage("at least 1 of each", "--keep %d --generations %d", keep.Versions, keep.Generations)
			}
			p, err := look.publisher(a, args[0], nil)
			if err != nil {
				return err
			}
			out, err := p.Prune(c.Context(), keep, dry)
			if err != nil {
				return err
			}
			if err := a.show(out, func() { a.printPruned(out) }); err != nil || len(out.Stays) == 0 {
				return err
			}
			return cli.WithHint(fmt.Errorf("the registry did not remove %d of what was to go", len(out.Stays)),
				"let it delete manifests and change tags, or remove them with its own means; what stays takes space, and no node needs it")
		},
	}
	c.Flags().IntVar(&keep.Versions, "keep", 3, "number of versions of layers to keep, by when they were released")
	c.Flags().IntVar(&keep.Generations, "generations", 10, "number of generations of the fleet to keep")
	c.Flags().BoolVarP(&dry, "dry-run", "n", false, "only print what would be removed")
	look.flags(a, c.Flags())
	look.known.waiting(c.Flags())
	return c
}

func (a *app) printPruned(out *publish.Pruned) {
	gone, old := 0, 0
	for _, g := range out.Generations {
		verdict := "keep"
		if !g.Keep {
			verdict = "remove"
			old++
		}
		cli.Printf(a.out, "generation %s  %s\n", g.Generation, verdict)
	}
	for _, l := range out.Layers {
		verdict := "keep: " + l.Keep
		if l.Keep == "" {
			verdict = "remove"
			gone++
		}
		cli.Printf(a.out, "%s  %s %s  %s\n", l.Digest, l.Version, l.Variant, verdict)
	}
	images := 0
	for _, s := range out.Services {
		verdict := "keep: " + s.Keep
		if s.Keep == "" {
			verdict = "remove"
			images++
		}
		cli.Printf(a.out, "service  %s  %s\n", s.Image, verdict)
	}
	what := plain.Count(old, "generation") + " and " + plain.Count(gone, "layer")
	if len(out.Services) > 0 {
		what += ", " + plain.Count(images, "image") + " of services"
	}
	for _, name := range out.Stays {
		cli.Printf(a.out, "%s  stays\n", name)
	}
	switch {
	case len(out.Stays) > 0: // which the error says
	case out.Removed:
		a.say("removed %s, freed %s", what, plain.Bytes(out.Freed))
	default:
		a.say("would remove %s", what)
	}
}
