// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/keys"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/release"
	"github.com/caisson-os/caisson/spec/site"
)

func (a *app) publishCommand() *cobra.Command {
	var to, layer, expires, epochKey string
	var epoch uint64
	var all, fresh bool
	var who signers
	var reach access
	var known memoryFlags
	c := &cobra.Command{
		Use:   "publish FILE… --key KEY",
		Short: "Compile, sign and push the nodes' overlays",
		Long: "Compile, sign and push the nodes' overlays.\n\n" +
			"Every publish takes the fleet's next generation. A node whose overlay and layer are as published\n" +
			"keeps its generation; its signature is renewed when two thirds of its life are over. --all gives\n" +
			"every node the new generation, which also raises the least one that diskless nodes accept.\n\n" +
			"What the registry holds is verified with the site's keys and compared with what was published last\n" +
			"(caisson.memory beside the site) before any of it is used. Layers are named only when a release key\n" +
			"of the site signed them, and older ones than a node has only by digest.\n\n" + signerHelp,
		Example: "  caisson publish site.yaml --key keys/operator.key\n" +
			"  caisson publish site.yaml --to registry.example.org:5000/metal-a --layer sha256:… --key keys/operator.key",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			s, err := a.loadSite(names...)
			if err != nil {
				return err
			}
			if to == "" {
				to = s.Registry()
			}
			if to == "" {
				return cli.Usage("give --to, or registry: in the site", "no registry to publish to")
			}
			if known.remember == "" {
				known.remember = memoryName(names[0])
			}
			policy, err := sitePolicy(s, expires)
			if err != nil {
				return err
			}
			by, err := who.load()
			if err != nil {
				return err
			}
			o := publish.Options{All: all, Epoch: epoch}
			if epochKey != "" {
				if o.EpochKey, err = keys.Open(epochKey); err != nil {
					return err
				}
			}
			open := reach.open
			if s.HasLayer() { // it must be there already
				open = reach.existing
			}
			r, err := open(to)
			if err != nil {
				return err
			}
			p, err := a.publisher(r, by, trustFlags{}, known)
			if err != nil {
				return err
			}
			p.NewFleet, o.LayerNamed = fresh, oci.ValidDigest(layer)
			nodes, err := a.compile(c.Context(), s, p, layer, policy)
			if err != nil {
				return err
			}
			result, err := p.Publish(c.Context(), policy, nodes, o)
			if err != nil {
				return err
			}
			return a.published(result, to)
		},
	}
	f := c.Flags()
	f.StringVar(&to, "to", "", "publish to `REF` instead of the site's registry")
	f.StringVar(&layer, "layer", "current", "the layer: a `TAG`, or the digest of its index or manifest")
	f.StringVar(&expires, "expires", "", "how long the signatures are valid, as in 30d or 12h (the site's trust.expires)")
	f.BoolVar(&all, "all", false, "a new generation also for nodes that do not change")
	f.Uint64Var(&epoch, "epoch", 0, "raise the fleet's security epoch to `N`: nothing older is accepted again")
	f.StringVar(&epochKey, "epoch-key", "", "the private key in `FILE` that alone may raise the epoch")
	f.BoolVar(&fresh, "new-fleet", false, "make a first fleet in a registry that has none")
	who.flags(f)
	known.flags(f)
	reach.flags(f)
	return c
}

// sitePolicy is what the site says about trust, its key files read.
func sitePolicy(s *site.Site, expires string) (publish.Policy, error) {
	t := s.Trust()
	p := publish.Policy{Site: true, Fleet: s.Name(), Threshold: t.Threshold, Lifetime: t.Expires}
	var err error
	if expires != "" {
		if p.Lifetime, err = parseLifetime(expires); err != nil {
			return p, err
		}
	}
	if p.Operator, err = keys.Publics(t.Operator); err != nil {
		return p, err
	}
	if p.Epoch, err = keys.Publics(t.Epoch); err != nil {
		return p, err
	}
	if s.HasLayer() {
		p.Release, err = keys.Publics(t.Release)
	}
	if err != nil {
		return p, err
	}
	return p, oneRoleEach(p, t.Attestation)
}

// oneRoleEach refuses a key in two roles. Nothing published is verified with an
// attestation key, so its file may be missing.
func oneRoleEach(p publish.Policy, attestation []string) error {
	roles := map[string][]sign.Verifier{"release": p.Release, "operator": p.Operator, "epoch": p.Epoch}
	for _, name := range attestation {
		if keys, err := keys.Publics([]string{name}); err == nil {
			roles["attestation"] = append(roles["attestation"], keys...)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	seen := map[string]string{}
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		for _, k := range roles[role] {
			id := k.ID()
			if other := seen[id]; other != "" && other != role {
				return cli.Usage("caisson keys generate makes another", "one key is both %s and %s key: a key has one role", other, role)
			}
			seen[id] = role
		}
	}
	return nil
}

// parseLifetime reads 30d and what time.ParseDuration reads.
func parseLifetime(text string) (time.Duration, error) {
	spelled := text
	if days, ok := strings.CutSuffix(text, "d"); ok {
		spelled = days + "h"
	}
	d, err := time.ParseDuration(spelled)
	if strings.HasSuffix(text, "d") {
		d *= 24
	}
	if err != nil || d < time.Minute || d > 10*366*24*time.Hour {
		return 0, cli.Usage("as in 30d or 12h, at most ten years", "%q is not a lifetime of signatures", text)
	}
	return d, nil
}

// compile turns the site into overlays that name released layers.
func (a *app) compile(ctx context.Context, s *site.Site, p *publish.Publisher, reference string, policy publish.Policy) ([]publish.Node, error) {
	layers := map[string]release.Layer{} // by node
	if s.HasLayer() {
		found, err := p.Layers(ctx, policy, reference)
		if err != nil {
			return nil, err
		}
		variants, err := s.Variants()
		if err != nil {
			return nil, err
		}
		for _, v := range variants {
			l, err := release.ForVariant(found, v.Name)
			if err != nil {
				return nil, err
			}
			if digest.Hex(l.Recipe) != site.RecipeID(v.Recipe) {
				if reference == release.Current {
					return nil, cli.WithHint(fmt.Errorf("layer %s (variant %s) was built from another recipe than the site has now", l.Digest, v.Name),
						"run 'caisson build' first; --layer "+l.Digest+" publishes this one all the same")
				}
				a.say("layer %s (variant %s) was built from another recipe than the site has now", l.Digest, v.Name)
			}
			for _, node := range v.Nodes {
				layers[node] = l
			}
		}
	}
	var nodes []publish.Node
	for _, n := range s.Nodes() {
		l := layers[n.Name]
		nodes = append(nodes, publish.Node{Name: n.Name, Match: n.Match, Layer: l.Digest, Knows: l.Features,
			Doc: func() ([]byte, error) { return s.Compile(n.Name, l.Digest, l.Variant) }})
	}
	return nodes, nil
}

// published prints a result of publish, pin or refresh.
func (a *app) published(r *publish.Result, to string) error {
	if a.json() {
		return cli.JSON(a.out, r)
	}
	for _, n := range r.Published {
		cli.Printf(a.out, "%s\tgeneration %d\t%s\n", n.Node, n.Generation, n.Overlay)
	}
	for _, n := range r.Resigned {
		cli.Printf(a.out, "%s\trenewed\t%s\n", n.Node, n.Overlay)
	}
	a.say("%s: fleet %s is at generation %d: %d published, %d renewed, %d unchanged",
		to, r.Fleet, r.Generation, len(r.Published), len(r.Resigned), r.Unchanged)
	return nil
}
