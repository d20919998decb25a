// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// publishFlags are the flags of publish.
type publishFlags struct {
	publishing
	layer, expires, epochKey string
	epoch                    uint64
	confirm                  time.Duration
	fresh                    bool
	which                    chosen
	objects                  fromCluster
	secrets                  opening
}

func (a *app) publishCommand() *cobra.Command {
	var x publishFlags
	c := verb("publish", func(c *cobra.Command, names []string) error { return a.publish(c.Context(), &x, names) })
	f := c.Flags()
	f.StringVar(&x.layer, "layer", "current", "the layer: a `TAG`, or the digest of its index or manifest")
	f.DurationVar(&x.confirm, "confirm", 0, "nodes go back to what they had unless 'caisson-agent confirm' is called on "+
		"them within this `TIME`")
	f.StringVar(&x.expires, "expires", "", "how long the signatures are valid, as in 30d or 12h (the site's trust.expires)")
	x.which.some(f, "publish")
	f.BoolVar(&x.which.all, "all", false, "a new generation also for nodes that do not change")
	f.Uint64Var(&x.epoch, "epoch", 0, "raise the fleet's security epoch to `N`: nothing older is accepted again")
	f.StringVar(&x.epochKey, "epoch-key", "", "the private key in `FILE` that alone may raise the epoch; also env:NAME, fd:N or command:CMD")
	f.BoolVar(&x.fresh, "new-fleet", false, "make a first fleet in a registry that has none")
	x.flags(a, f, "publish to `REF` instead of the site's registry")
	x.secrets.flags(f)
	x.objects.flags(c, 0)
	f.StringVar(&x.objects.plan, "plan", "", "publish from a cluster only what has this `DIGEST`, and do not ask")
	return c
}

func (a *app) publish(ctx context.Context, x *publishFlags, names []string) error {
	s, err := x.objects.load(ctx, a, names)
	if err != nil {
		return err
	}
	some, err := x.which.of(s)
	if err != nil {
		return err
	}
	o, err := x.options(x.why.of(ctx, a, s), s, some)
	if err != nil {
		return err
	}
	r, err := x.open(a, s, besideName(names), x.expires, true)
	if err != nil {
		return err
	}
	if x.epochKey != "" {
		if o.EpochKey, err = keys.Signer(x.epochKey, &x.who.passphrase); err != nil {
			return err
		}
	}
	r.Publisher.NewFleet = x.fresh
	source, err := x.services(ctx, a, r)
	if err != nil {
		return err
	}
	o.First = func(ctx context.Context) error { return source.Push(ctx, r.Publisher.Registry, s) }
	sealer, err := x.secrets.open(ctx, &x.objects, s, some, !x.who.dry)
	if err = a.sealed(sealer, x.who.dry, err); err != nil {
		return err
	}
	nodes, err := r.Publisher.Compile(ctx, s, r.Policy, x.layer)
	if err != nil {
		return err
	}
	asked := slices.DeleteFunc(slices.Clone(nodes), func(n publish.Node) bool { return o.Only != nil && !o.Only(n.Name) })
	if err := a.askKept(ctx, *r, source, x.layer, asked); err != nil {
		return err
	}
	r.Layer = x.layer
	if o.From, err = x.objects.agree(ctx, a, *r, nodes); err != nil {
		return err
	}
	result, err := r.Publisher.Publish(ctx, r.Policy, nodes, o)
	if err != nil {
		return err
	}
	for _, name := range result.Left {
		a.say("node %s left the site: its machine keeps what it has, and finds it again; 'caisson retire' ends that", name)
	}
	return a.published(x.to, result, nil)
}

// options returns the flags' options of a publish of some nodes, all when nil.
func (x *publishFlags) options(by publish.By, s *site.Site, some []string) (publish.Options, error) {
	o := publish.Options{By: by, All: x.which.all, Epoch: x.epoch, LayerNamed: oci.ValidDigest(x.layer)}
	o.Keep = func(name string) bool { return s.Fleet().WhyLeftOut(name) != "" }
	if some != nil {
		o.Only = func(name string) bool { return slices.Contains(some, name) }
	}
	if x.confirm != 0 {
		o.Confirm = &spec.Confirm{Within: int64(x.confirm / time.Second)}
		if err := rules.Confirm(o.Confirm); err != nil {
			return o, cli.Usage("as in --confirm 60s", "%w", err)
		}
	}
	return o, nil
}

// askKept has the programs of layers that were built here look at the files of the nodes of a site
// that are published, and says where it cannot.
func (a *app) askKept(ctx context.Context, of preview.Preview, source *content.Source, layer string, nodes []publish.Node) error {
	of.Layer = layer
	unasked, err := of.Ask(ctx, nodes, source.Cache, source.TextsOn)
	for _, why := range unasked {
		a.say("%s", why)
	}
	return err
}

// published prints what publish, refresh, retire and the verbs of holds did, or would do.
func (a *app) published(to string, r *publish.Result, err error) error {
	if err != nil {
		return err
	}
	return a.show(r, func() {
		r.Write(a.out)
		r.Tell(to, a.say)
	})
}

func (a *app) approveCommand() *cobra.Command {
	var fleet, plan, name, namespace string
	var why changer
	var who signers
	c := verb("approve", func(*cobra.Command, []string) error {
		bare, err := preview.ActDigest(plan)
		if err != nil {
			return err
		}
		by, err := who.load(a, nil)
		if err != nil {
			return err
		}
		b := why.by()
		statements, err := preview.Approve(by, plan, sign.ApprovalPredicate{Fleet: fleet, Author: b.Author, Reason: b.Reason, IssuedAt: now()})
		if err != nil {
			return err
		}
		if name == "" {
			if name, err = preview.ApprovalName(bare, by[0].Public()); err != nil {
				return err
			}
		}
		object := cluster.NewApproval(namespace, name, cluster.ApprovalSpec{Plan: plan, Author: b.Author, Reason: b.Reason,
			Statements: statements})
		text, err := object.YAML()
		if err != nil {
			return err
		}
		return a.show(object, func() { _, err = a.out.Write(text) })
	})
	f := c.Flags()
	f.StringVar(&fleet, "fleet", "", "the fleet's `NAME`, as the Site has it")
	f.StringVar(&plan, "plan", "", "the `DIGEST` of the plan")
	f.StringVar(&name, "name", "", "the `NAME` of the object (of the plan and the key when empty)")
	f.StringVar(&namespace, "namespace", "", "the `NAMESPACE` of the object (kubectl's when empty)")
	why.flags(f)
	who.keyFlags(f)
	requireFlags(c, "fleet", "plan")
	return c
}

func (a *app) planCommand() *cobra.Command {
	var from, layer string
	var which chosen
	var reach access
	var known memoryFlags
	var objects fromCluster
	var secrets opening
	var advisories advisoryFlag
	c := verb("plan", func(c *cobra.Command, names []string) error {
		s, err := objects.load(c.Context(), a, names)
		if err != nil {
			return err
		}
		from = cmp.Or(from, s.Registry())
		known.remember = cmp.Or(known.remember, memoryName(besideName(names)))
		w, err := a.preview(s, from, layer, reach, known)
		if err != nil {
			return err
		}
		if w.Advise, err = advisories.layers(names); err != nil {
			return err
		}
		only, err := which.of(s)
		if err != nil {
			return err
		}
		sealer, err := secrets.open(c.Context(), &objects, s, only, false)
		if err != nil {
			return err
		}
		if sealer != nil {
			sealer.Expect = true
		}
		p, err := w.Plan(c.Context(), only)
		if err != nil {
			return err
		}
		if sealer != nil {
			sealer.Mark(p)
		}
		return cmp.Or(a.print(p, nil), drift(p.Changed()))
	})
	f := c.Flags()
	f.StringVar(&from, "from", "", "where the site is published; the site's registry when absent")
	f.StringVar(&layer, "layer", "current", "the layer that would be published: a `TAG`, or the digest of its index or manifest")
	which.some(f, "plan")
	secrets.looking(f)
	advisories.flag(f)
	objects.flags(c, 0)
	known.looking(f)
	reach.flags(a, f)
	return c
}

// empty reports whether ref is a directory that is not there yet: nothing was published, and no
// key is needed to see that.
func (a *app) empty(ref oci.Ref, known memoryFlags) (bool, error) {
	if !ref.IsLayout() {
		return false, nil
	}
	if _, err := os.Stat(filepath.Join(ref.Layout, "index.json")); !errors.Is(err, fs.ErrNotExist) {
		return false, nil // opening it says what else there is
	}
	m, err := known.open(a, nil, false)
	if err == nil {
		err = m.Elsewhere(ref)
	}
	if err == nil {
		a.say(nothingYet, ref)
	}
	return true, err
}

// nothingYet is said of a place that holds no fleet.
const nothingYet = "%s: nothing is published there yet"

// preview prepares a plan.
func (a *app) preview(s *site.Site, from, layer string, reach access, known memoryFlags) (*preview.Preview, error) {
	w := &preview.Preview{Site: s, Layer: layer}
	parsed, err := oci.ParseRef(from)
	if from == "" || err != nil {
		return nil, cli.Usage("host[:port]/prefix, or oci:DIR", "--from: %q does not name a registry", from)
	}
	if err := policy.SameFleet(s); err != nil {
		return nil, err
	}
	if empty, err := a.empty(parsed, known); empty || err != nil {
		return w, err
	}
	if w.Policy, err = policy.Site(s, ""); err != nil {
		return nil, err
	}
	r, err := reach.open(from)
	if err != nil {
		return nil, err
	}
	if w.Publisher, err = a.publisher(r, nil, &trustFlags{}, known); err != nil {
		return nil, err
	}
	if w.Publisher.Memory != nil {
		w.Publisher.Memory.Fixed()
	}
	return w, nil
}
