// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/attest"
	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/verify"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/plan"
)

func (a *app) diffCommand() *cobra.Command {
	var look looking
	var files bool
	var by, nodes []string
	var advisories advisoryFlag
	c := verb("diff", func(c *cobra.Command, args []string) error {
		switch {
		case len(nodes) == 2:
			return a.diffGenerations(c.Context(), &look, args, nodes, advisories)
		case len(nodes) > 2 || len(nodes) == 1 && len(args) != 3:
			return cli.Usage("REF GEN GEN --node NAME compares a node then and now; REF [GEN] --node A --node B two nodes",
				"--node does not go with these")
		case len(args) == 3 && len(by) > 0:
			return errReleaseKey
		case len(args) == 2 && advisories != "":
			return cli.Usage("generations and nodes are compared with it; 'caisson plan' and 'lock --update' take it, too",
				"--advisories does not go with two layers")
		case len(args) == 2 && look.whom.said():
			return errOperators
		case len(args) == 3:
			return a.diffGenerations(c.Context(), &look, args, nodes, advisories)
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
		return cmp.Or(printEach(a, found, found), drift(len(found) > 0))
	})
	c.Args = func(c *cobra.Command, args []string) error {
		if len(nodes) == 2 {
			return takes("REF [GEN]")(c, args)
		}
		return takes("LAYER LAYER [GEN]")(c, args)
	}
	c.Flags().BoolVar(&files, "files", false, "compare every file; reads the images that differ")
	c.Flags().StringArrayVar(&by, "key", nil, releaseKeyHelp)
	c.Flags().StringArrayVar(&nodes, "node", nil, "compare this node in two generations, or the two `NODE`s that are named")
	advisories.flag(c.Flags())
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
	return release.VerifyAll(ctx, slices.Concat(sets...), pubs)
}

// diffGenerations prints what changed from one generation of a fleet to another, or in what a node
// differs from another one, in a generation or in the newest; with what their layers close where a
// file of advisories is named.
func (a *app) diffGenerations(ctx context.Context, look *looking, args, nodes []string, by advisoryFlag) error {
	fleet, err := look.open(ctx, a, args[0])
	if err != nil {
		return err
	}
	var named []published.Generation
	for _, name := range args[1:] {
		g, err := fleet.Find(ctx, name)
		if err != nil {
			return err
		}
		named = append(named, g)
	}
	var found *plan.Plan
	if len(nodes) == 2 {
		found, err = history.Nodes(ctx, fleet, named, nodes[0], nodes[1])
	} else {
		found, err = history.Between(ctx, fleet, named[0], named[1], strings.Join(nodes, ""))
	}
	if err != nil {
		return err
	}
	advise, err := by.layers(look.whom.site)
	if err == nil {
		err = history.Advise(ctx, fleet, found, advise)
	}
	if err != nil {
		return err
	}
	return cmp.Or(a.print(found, nil), drift(found.Changed()))
}

func (a *app) inspectCommand() *cobra.Command {
	var look looking
	var released []string
	var packages, profiles, sbom bool
	var node string
	c := verb("inspect", func(c *cobra.Command, args []string) error {
		if node != "" {
			if sbom || packages || profiles {
				return cli.Usage("--sbom, --packages and --profiles apply to layers", "give either --node or --sbom, --packages and --profiles")
			}
			if len(released) > 0 {
				return errReleaseKey
			}
			return a.inspectNode(c.Context(), &look, args[0], node)
		}
		if look.whom.said() {
			return errOperators
		}
		layers, err := openLayers(c.Context(), &look.reach, args[0])
		if err != nil {
			return err
		}
		var by []sign.Verifier
		if len(released) == 0 {
			a.say(noKey)
		} else if by, err = keys.Publics(released); err != nil {
			return err
		}
		if sbom {
			text, err := release.OnlySBOM(c.Context(), layers, by)
			if err == nil {
				_, err = a.out.Write(text)
			}
			return err
		}
		out, unsigned, err := release.InspectAll(c.Context(), layers, by)
		if err != nil {
			return err
		}
		return cmp.Or(a.show(out, func() {
			for i, one := range out {
				if i > 0 {
					cli.Printf(a.out, "\n")
				}
				one.Write(a.out, packages, profiles)
			}
		}), unsigned)
	})
	c.Args = takes("LAYER")
	c.Flags().BoolVar(&packages, "packages", false, "list the packages")
	c.Flags().BoolVar(&profiles, "profiles", false, "list the AppArmor profiles")
	c.Flags().StringArrayVar(&released, "key", nil, releaseKeyHelp)
	c.Flags().BoolVar(&sbom, "sbom", false, "print the SPDX document of the layer")
	c.Flags().StringVar(&node, "node", "", "show what this node has")
	look.flags(a, c.Flags())
	return c
}

// inspectNode prints what a fleet has for a node, verified.
func (a *app) inspectNode(ctx context.Context, look *looking, ref, node string) error {
	fleet, err := look.open(ctx, a, ref)
	if err != nil {
		return err
	}
	found, err := fleet.Inspect(ctx, node)
	if err != nil {
		return err
	}
	shown := a.show(found, func() { err = found.Write(a.out) })
	return cmp.Or(shown, err)
}

func (a *app) historyCommand() *cobra.Command {
	var node, key string
	var look looking
	var advisories advisoryFlag
	c := verb("history", func(c *cobra.Command, args []string) error {
		switch {
		case key != "" && node == "":
			return cli.Usage("name the node, as in --node superhost", "--key is about one node")
		case len(args) == 2 && node != "":
			return cli.Usage("'caisson diff REF GEN GEN --node NAME' compares a node", "GEN is shown whole, and --node is about one node")
		case len(args) == 1 && advisories != "":
			return cli.Usage("name one, as in 'caisson history REF 45 --advisories tracker.json'", "--advisories is about what one generation changed")
		}
		by, err := advisories.layers(look.whom.site)
		if err != nil {
			return err
		}
		fleet, err := look.open(c.Context(), a, args[0])
		if err != nil {
			return err
		}
		names, err := look.whom.names(a)
		if err != nil {
			return err
		}
		if len(args) == 2 {
			g, err := fleet.Find(c.Context(), args[1])
			if err != nil {
				return err
			}
			return a.print(history.Show(c.Context(), fleet, g, names, by))
		}
		var list []history.Entry
		if key != "" {
			list, err = history.Setting(c.Context(), fleet, node, key, names)
		} else {
			list, err = history.List(c.Context(), fleet, node, names)
		}
		if err != nil {
			return err
		}
		if len(list) == 0 {
			a.say("no generation that is kept has it")
		}
		return a.show(list, func() { history.Write(a.out, list) })
	})
	c.Flags().StringVar(&node, "node", "", "show what changed for this node")
	c.Flags().StringVar(&key, "key", "", "with --node: show when the setting KIND/`KEY` changed, or one below it")
	advisories.flag(c.Flags())
	look.flags(a, c.Flags())
	return c
}

// looking says whose fleet is looked at, and where.
type looking struct {
	reach access
	whom  trustFlags
	known memoryFlags
	kept  *published.Shards // of who looks again and again; nil keeps nothing
}

func (l *looking) flags(a *app, f *pflag.FlagSet) {
	l.whom.flags(f)
	f.StringVar(&l.known.remember, "remember", "", "`FILE` that remembers what was published (caisson.memory beside the site when empty)")
	l.reach.flags(a, f)
}

// open reads a published fleet with the keys that are trusted, and changes nothing. It says
// what is not published yet.
func (l *looking) open(ctx context.Context, a *app, ref string) (*published.Fleet, error) {
	f, err := l.read(ctx, a, ref)
	if err != nil {
		return nil, err
	}
	unfinished, err := f.Unfinished(ctx)
	if unfinished != "" {
		a.say("publish unfinished; showing the state before it: %s", unfinished)
	}
	return f, err
}

// read is open for who says it otherwise.
func (l *looking) read(ctx context.Context, a *app, ref string) (*published.Fleet, error) {
	if err := l.trustsSomebody(ref); err != nil {
		return nil, err
	}
	p, err := l.publisher(a, ref, nil)
	if err != nil {
		return nil, err
	}
	p.AcceptExpired = true // nothing is signed again
	p.Kept = l.kept
	return p.Look(ctx)
}

// publisher opens what is published, as the flags say.
func (l *looking) publisher(a *app, ref string, by []crypto.Signer) (*publish.Publisher, error) {
	r, err := l.reach.existing(ref)
	if err != nil {
		return nil, err
	}
	return a.publisher(r, by, &l.whom, l.known)
}

func (l *looking) trustsSomebody(ref string) error {
	if l.whom.nobody() {
		return trustsNobody(ref)
	}
	return nil
}

// trustsNobody is the error of a verb that was given no key to verify ref with.
func trustsNobody(ref string) error {
	if err := notASite(ref); err != nil {
		return err
	}
	return cli.Usage("--site FILE is the site that is published there; --trust PUB the public half of an operator's key",
		"no public key to verify with: give --site or --trust")
}

// notASite refuses a site where it is asked where a fleet is published.
func notASite(ref string) error {
	if ext := filepath.Ext(ref); ext != ".yaml" && ext != ".yml" {
		return nil
	}
	return cli.Usage("it takes where the fleet is published first, as in oci:./out --site "+ref,
		"%s is a site, and not where one is published", ref)
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
		report, err := verify.Fleet(c.Context(), &p.Reader, *p.Trust, nodes, images)
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
	if err := known.AddFiles(f.loaders, media.Measure); err != nil {
		return err
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
