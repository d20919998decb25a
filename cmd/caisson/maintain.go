// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/mirror"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
)

func (a *app) refreshCommand() *cobra.Command {
	var lists publish.Lists
	var reject []string
	var x changing
	c := verb("refresh", func(c *cobra.Command, args []string) error {
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
	})
	f := c.Flags()
	f.StringArrayVar(&reject, "reject", nil, "put the `DIGEST` of a layer's manifest or an overlay on the reject list, "+
		"or every overlay that a generation gave to nodes, as in 0-16")
	f.BoolVar(&lists.Unseen, "yes", false, "reject also a digest that no node has and the registry has not")
	f.StringArrayVar(&lists.Allow, "allow", nil, "take the `DIGEST` off the reject list")
	x.flags(a, f)
	return c
}

func (a *app) retireCommand() *cobra.Command {
	var names []string
	var why changer
	var x changing
	c := verb("retire", func(c *cobra.Command, args []string) error {
		if len(names) == 0 {
			return cli.Usage("", "no node is named: give --node")
		}
		if len(x.whom.site) > 0 {
			s, err := a.loadNamed(x.whom.site...)
			if err != nil {
				return err
			}
			for _, name := range names {
				if s.Fleet().Has(name) {
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
	})
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
	c := verb("prune", func(c *cobra.Command, args []string) error {
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
		if err := a.printTold(out); err != nil || len(out.Stays) == 0 {
			return err
		}
		return cli.WithHint(fmt.Errorf("the registry did not remove %d of what was to go", len(out.Stays)),
			"let it delete manifests and change tags, or remove them with its own means; what stays takes space, and no node needs it")
	})
	c.Flags().IntVar(&keep.Versions, "keep", 3, "number of versions of layers to keep, by when they were released")
	c.Flags().IntVar(&keep.Generations, "generations", 10, "number of generations of the fleet to keep")
	c.Flags().BoolVarP(&dry, "dry-run", "n", false, "only print what would be removed")
	look.flags(a, c.Flags())
	look.known.waiting(c.Flags())
	return c
}

// copyFlags are the flags of copy.
type copyFlags struct {
	from, to           access
	fromPlain, toPlain bool
	whom               trustFlags
	known              memoryFlags
	unverified         bool
	dry                bool
}

func (a *app) copyCommand() *cobra.Command {
	var f copyFlags
	c := verb("copy", func(c *cobra.Command, args []string) error { return a.copy(c.Context(), f, args[0], args[1]) })
	f.from.flags(a, c.Flags())
	c.Flags().BoolVar(&f.fromPlain, "from-plain-http", false, "talk HTTP to SRC only")
	c.Flags().BoolVar(&f.toPlain, "to-plain-http", false, "talk HTTP to DST only")
	f.whom.flags(c.Flags())
	c.Flags().StringVar(&f.known.remember, "remember", "",
		"`FILE` that remembers what was published at SRC (caisson.memory beside the site when empty)")
	c.Flags().BoolVar(&f.unverified, "unverified", false, "copy whatever is there, for example to look at it elsewhere")
	dryFlag(c.Flags(), &f.dry)
	c.Flags().Lookup("dry-run").Usage = "say what would be copied, and copy nothing"
	return c
}

func (a *app) copy(ctx context.Context, f copyFlags, src, dst string) error {
	if f.unverified == f.whom.said() {
		return cli.Usage("--site FILE has all keys; --unverified copies whatever is there",
			"what is copied is verified with --site or --trust, or not at all with --unverified")
	}
	ref, reference, err := release.ParseName(src)
	if err != nil {
		return err
	}
	one := ref != src
	if one && len(f.whom.keys) > 0 {
		return cli.Usage("--site FILE names the release keys", "--trust names operators, who do not sign layers")
	}
	f.to = f.from
	f.from.plainHTTP = f.from.plainHTTP || f.fromPlain
	f.to.plainHTTP = f.to.plainHTTP || f.toPlain
	from, err := f.from.existing(ref)
	if err != nil {
		return err
	}
	to, err := f.to.open(dst)
	if err != nil {
		return err
	}
	m := &mirror.Mirror{Say: a.say, Dry: f.dry, To: &publish.Publisher{Registry: to, Now: now(), Say: a.say}}
	if m.From, err = a.publisher(from, nil, &f.whom, f.known); err != nil {
		return err
	}
	if m.Policy = m.From.Trust; m.Policy == nil {
		a.say("warning: nothing is verified: whoever can push to %s chooses what is copied", from.Ref())
	}
	var result *mirror.Result
	if one {
		result, err = m.Layer(ctx, reference)
	} else {
		result, err = m.Fleet(ctx)
	}
	if err != nil {
		return err
	}
	return a.printTold(result)
}
