// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

func (a *app) publishCommand() *cobra.Command {
	var layer, expires, epochKey, cache string
	var epoch uint64
	var confirm time.Duration
	var fresh bool
	var which chosen
	var x publishing
	var objects fromCluster
	var secrets opening
	c := &cobra.Command{
		Use:   "publish FILE…",
		Short: "Compile, sign and push the overlays of nodes",
		Long: "Compile, sign and push the overlays of nodes.\n\n" +
			"Every publish takes the fleet's next generation. A node whose overlay and layer are as published\n" +
			"keeps its generation; its signature is renewed when two thirds of its life are over. --all gives\n" +
			"every node the new generation, which also raises the lowest generation that diskless nodes accept. --node,\n" +
			"--label and --set publish some nodes; the others stay as they are.\n\n" +
			"Nodes that are held (freeze, pin, rollback, pause) keep their content and are named; a hold whose time\n" +
			"is over ends. Nodes that left the site leave the index; 'caisson retire' removes their names, too.\n\n" +
			"What the registry holds is verified with the site's keys and compared with what was published last\n" +
			"(caisson.memory beside the site) before any of it is used. Layers are named only when a release key\n" +
			"of the site signed them, and older ones than a node has only by digest. Services are published at the\n" +
			"commits of services.lock, see 'caisson services'; images that the registry lacks are pushed.\n\n" +
			"Secrets are sealed to the recipients that were accepted, see 'caisson secrets', and what was sealed is kept in\n" +
			"secrets.lock. A secret whose file is the one that was sealed is not opened again; a command is run each time, and a\n" +
			"Secret of the cluster read.\n\n" +
			fromClusterHelp + "\nWhat is published from a cluster was written by whoever may write objects there: the plan is shown and asked\n" +
			"about, or --plan has its digest, as the Site's status or 'publish --dry-run' says it.\n\n" + signerHelp,
		Example: "  caisson publish site.yaml --key keys/operator.key\n" +
			"  caisson publish site.yaml --to registry.example.org:5000/metal-a --layer sha256:… --key keys/operator.key",
		Args: objects.args,
		RunE: func(c *cobra.Command, names []string) error {
			s, err := objects.load(c.Context(), a, names)
			if err != nil {
				return err
			}
			x.to = cmp.Or(x.to, s.Registry())
			if x.to == "" {
				return cli.Usage("give --to, or registry: in the site", "no registry to publish to")
			}
			x.known.remember = cmp.Or(x.known.remember, memoryName(besideName(names)))
			policy, err := policy.Site(s, expires)
			if err != nil {
				return err
			}
			by, err := x.who.load(a, s.Trust().Operator)
			if err != nil {
				return err
			}
			o := publish.Options{By: x.why.by(), All: which.all, Epoch: epoch}
			if confirm != 0 {
				o.Confirm = &spec.Confirm{Within: int64(confirm / time.Second)}
				if err := rules.Confirm(o.Confirm); err != nil {
					return cli.Usage("as in --confirm 60s", "%w", err)
				}
			}
			o.Keep = func(name string) bool { return s.WhyLeftOut(name) != "" }
			if o.Only, err = which.only(s); err != nil {
				return err
			}
			if epochKey != "" {
				if o.EpochKey, err = keys.Signer(epochKey, &x.who.passphrase); err != nil {
					return err
				}
			}
			open := x.reach.open
			if s.HasLayer() { // it must be there already
				open = x.reach.existing
			}
			r, err := open(x.to)
			if err != nil {
				return err
			}
			p, err := a.publisher(r, by, &trustFlags{}, x.known)
			if err != nil {
				return err
			}
			p.Dry, p.NewFleet, o.LayerNamed = x.who.dry, fresh, oci.ValidDigest(layer)
			source, err := a.source(cache)
			if err != nil {
				return err
			}
			o.First = func(ctx context.Context) error { return source.Push(ctx, r, s) }
			if err := verifyServices(c.Context(), source, p, policy, s); err != nil {
				return err
			}
			some, err := which.of(s)
			if err != nil {
				return err
			}
			if err := p.MayPublish(policy); err != nil {
				return err
			}
			if err := secrets.seal(c.Context(), a, &objects, s, some, x.who.dry); err != nil {
				return err
			}
			nodes, err := p.Compile(c.Context(), s, policy, layer)
			if err != nil {
				return err
			}
			if o.From, err = objects.agree(c.Context(), a, preview.Preview{Site: s, Publisher: p, Policy: policy, Layer: layer}, nodes); err != nil {
				return err
			}
			result, err := p.Publish(c.Context(), policy, nodes, o)
			if err != nil {
				return err
			}
			for _, name := range result.Left {
				a.say("node %s left the site: its machine keeps what it has, and finds it again; 'caisson retire' ends that", name)
			}
			return a.published(result, x.to)
		},
	}
	f := c.Flags()
	f.StringVar(&layer, "layer", "current", "the layer: a `TAG`, or the digest of its index or manifest")
	f.StringVar(&cache, "cache", "", "directory kept between builds "+cacheDefault+": it has the images of services")
	f.DurationVar(&confirm, "confirm", 0, "nodes go back to what they had unless 'caisson-agent confirm' is called on them within this `TIME`")
	f.StringVar(&expires, "expires", "", "how long the signatures are valid, as in 30d or 12h (the site's trust.expires)")
	which.some(f, "publish")
	f.BoolVar(&which.all, "all", false, "a new generation also for nodes that do not change")
	f.Uint64Var(&epoch, "epoch", 0, "raise the fleet's security epoch to `N`: nothing older is accepted again")
	f.StringVar(&epochKey, "epoch-key", "", "the private key in `FILE` that alone may raise the epoch; also env:NAME, fd:N or command:CMD")
	f.BoolVar(&fresh, "new-fleet", false, "make a first fleet in a registry that has none")
	x.flags(a, f, "publish to `REF` instead of the site's registry")
	secrets.flags(f)
	objects.flags(f)
	objects.planFlag(f)
	return c
}
