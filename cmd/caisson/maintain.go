// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/attest"
	"github.com/caisson-os/caisson/fleet/mirror"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/spec"
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
		return x.change(a, args[0], func(p *publish.Publisher) (*publish.Result, error) { return p.Refresh(c.Context(), lists) })
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
		return x.change(a, args[0], func(p *publish.Publisher) (*publish.Result, error) { return p.Retire(c.Context(), names, why.by()) })
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
		if err := a.printTold(out, err); err != nil || len(out.Stays) == 0 {
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
	return a.printTold(result, err)
}

func (a *app) verifyCommand() *cobra.Command {
	var nodes []string
	var images bool
	var look looking
	c := verb("verify", func(c *cobra.Command, args []string) error {
		if err := look.trustsSomebody(args[0]); err != nil {
			return err
		}
		p, err := look.publisher(a, args[0], nil)
		if err != nil {
			return err
		}
		if keys := len(look.whom.keys); keys > 1 && look.whom.threshold == 0 {
			a.say("no --threshold: all %d keys must have signed", keys)
		}
		p.Images = images
		report, err := p.Verify(c.Context(), *p.Trust, nodes)
		if err = a.print(report, err); err == nil && !report.OK() {
			return cli.Refused("verification failed: nodes would refuse part of it, or it is not what fleet:index says")
		}
		return err
	})
	f := c.Flags()
	look.flags(a, f)
	f.StringArrayVar(&look.whom.keys, "key", nil, "the same as --trust")
	f.StringArrayVar(&nodes, "node", nil, "verify this node only; may be repeated")
	f.BoolVar(&images, "images", false, "read the images of the layers, too")
	return c
}

// quoteFlags are the flags of verify-quote.
type quoteFlags struct {
	node, nonce   string
	like, loaders []string
	look          looking
}

func (a *app) verifyQuoteCommand() *cobra.Command {
	var f quoteFlags
	c := verb("verify-quote", func(c *cobra.Command, args []string) error { return a.verifyQuote(c.Context(), args[0], args[1], f) })
	c.Flags().StringVar(&f.node, "node", "", "the node that the machine is to be")
	c.Flags().StringVar(&f.nonce, "nonce", "", "`HEX` that the machine was asked with")
	c.Flags().StringArrayVar(&f.like, "like", nil, "`FILE` with a quote of this machine that was accepted; may be repeated")
	c.Flags().StringArrayVar(&f.loaders, "loader", nil, "`FILE` of a loader, as 'caisson image --out FILE.efi' writes it; may be repeated")
	requireFlags(c, "node", "nonce")
	f.look.flags(a, c.Flags())
	return c
}

func (a *app) verifyQuote(ctx context.Context, file, ref string, f quoteFlags) error {
	nonce, err := hex.DecodeString(f.nonce)
	if err != nil || len(nonce) < spec.MinNonce {
		return cli.Usage("give the same as to 'caisson-agent quote'",
			"--nonce %.80q: %d bytes or more in hexadecimal are wanted", f.nonce, spec.MinNonce)
	}
	q, err := attest.ReadQuote(file)
	if err != nil {
		return err
	}
	known := attest.Known{Node: f.node}
	for _, name := range f.loaders {
		image, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("--loader: %w", err)
		}
		stub, programs, err := media.Measure(image)
		if err != nil {
			return cli.WithHint(fmt.Errorf("--loader %s: %w", name, err), "'caisson image SITE --out FILE.efi' writes one")
		}
		known.AddLoader(name, stub, programs...)
	}
	if err := known.AcceptFiles(f.like); err != nil {
		return err
	}
	fleet, err := f.look.open(ctx, a, ref)
	if err != nil {
		return err
	}
	if known.Roots, err = attest.Given(ctx, fleet, f.node); err != nil {
		return err
	}
	v := attest.Verify(q, nonce, known)
	if err := a.print(v, nil); err != nil {
		return err
	}
	if !v.Attested {
		return cli.Refused("%s is not attested: %s", v.Node, v.Why)
	}
	return nil
}
