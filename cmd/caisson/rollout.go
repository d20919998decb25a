// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// publication is a site that is ready to be published.
type publication struct {
	site   *site.Site
	policy publish.Policy
	p      *publish.Publisher
	to     string
}

// destination says where a site is published, and what is remembered of it.
type destination struct {
	to    string
	reach access
	known memoryFlags
}

const toSite = "the fleet is published in `REF` instead of the site's registry"

// flags are those of a verb that writes there.
func (x *destination) flags(a *app, f *pflag.FlagSet, to string) {
	x.looking(a, f, to)
	x.known.waiting(f)
}

// looking are those of a verb that changes nothing there.
func (x *destination) looking(a *app, f *pflag.FlagSet, to string) {
	f.StringVar(&x.to, "to", "", to)
	x.known.looking(f)
	x.reach.flags(a, f)
}

// open opens it, with the keys that sign; the memory is beside file. mayMake says that nothing
// need be there.
func (x *destination) open(a *app, file string, by []crypto.Signer, mayMake bool) (*publish.Publisher, error) {
	open := x.reach.existing
	if mayMake {
		open = x.reach.open
	}
	reg, err := open(x.to)
	if err != nil {
		return nil, err
	}
	known := x.known
	known.remember = cmp.Or(known.remember, memoryName(file))
	return a.publisher(reg, by, &trustFlags{}, known)
}

// publishing are the flags of a verb that publishes a site.
type publishing struct {
	destination
	why   changer
	who   signers
	cache string
}

func (x *publishing) flags(a *app, f *pflag.FlagSet, to string) {
	x.destination.flags(a, f, to)
	f.StringVar(&x.cache, "cache", "", "directory kept between builds "+cacheDefault+": it has the images of services")
	x.why.flags(f)
	x.who.flags(f)
}

// open opens where a site is published that was read from file, with the keys that sign; mayMake
// says that nothing need be there for a site without a layer.
func (x *publishing) open(a *app, s *site.Site, file, expires string, mayMake bool) (r *publication, err error) {
	x.to = cmp.Or(x.to, s.Registry())
	r = &publication{site: s, to: x.to}
	if r.to == "" {
		return nil, cli.Usage("give --to, or registry: in the site", "no registry to publish to")
	}
	if r.policy, err = policy.Site(s, expires); err != nil {
		return nil, err
	}
	by, err := x.who.load(a, s.Trust().Operator)
	if err != nil {
		return nil, err
	}
	if r.p, err = x.destination.open(a, file, by, mayMake && !s.HasLayer()); err == nil {
		r.p.Dry = x.who.dry
	}
	return r, err
}

// services verifies what is to be published of services, before anything is signed that names them.
func (x *publishing) services(ctx context.Context, a *app, r *publication) (*content.Source, error) {
	if err := r.p.MayPublish(r.policy); err != nil {
		return nil, err
	}
	source, err := a.source(x.cache)
	if err != nil {
		return nil, err
	}
	return source, verifyServices(ctx, source, r.p, r.policy, r.site)
}

// order compiles what the rollout of a name is to bring.
func (r *publication) order(ctx context.Context, name, layer string, at time.Time) (o rollout.Order, err error) {
	rule, divide, err := r.site.Rollout(name)
	if err != nil {
		return o, err
	}
	o = rollout.Order{Name: name, Rule: rule.Rule, Divide: divide, Budget: rule.Budget(r.site.Nodes()), At: at, Named: oci.ValidDigest(layer)}
	if o.Nodes, err = r.p.Compile(ctx, r.site, r.policy, layer); err != nil || !r.site.HasLayer() {
		return o, err
	}
	if o.Reference = layer; !o.Named {
		found, err := release.Find(ctx, r.p.Registry, layer)
		if err != nil {
			return o, err
		}
		o.Reference = found.Index
	}
	return o, nil
}

func (a *app) rolloutStartCommand() *cobra.Command {
	var x publishing
	var layer string
	var secrets opening
	c := verb("rollout start", func(c *cobra.Command, args []string) error {
		at := now()
		s, err := a.loadSiteAt(at, args[1:]...)
		if err != nil {
			return err
		}
		r, err := x.open(a, s, args[1], "", false)
		if err != nil {
			return err
		}
		source, err := x.services(c.Context(), a, r)
		if err != nil {
			return err
		}
		if err := secrets.seal(c.Context(), a, &fromCluster{}, r.site, nil, x.who.dry); err != nil {
			return err
		}
		o, err := r.order(c.Context(), args[0], layer, at)
		if err != nil {
			return err
		}
		if err := r.askKept(c.Context(), a, r.site, source, layer, o.Nodes); err != nil {
			return err
		}
		var plan *spec.RolloutPlan
		var held map[string]string
		if x.who.dry {
			plan, held, err = rollout.Preview(c.Context(), r.p, r.policy, o)
		} else {
			plan, held, err = rollout.Start(c.Context(), r.p, r.policy, x.why.of(c.Context(), a, r.site), o)
		}
		if err != nil {
			return err
		}
		state := rollout.StateOf(plan, spec.Rollout{Phase: spec.RolloutRunning, Since: at.Unix()})
		state.LeaveOut(held)
		if err := state.Lack(rollout.Unrehearsed(c.Context(), r.p, r.policy, plan, o.Nodes)); err != nil {
			a.say("'caisson rollout run' looks for rehearsals again: %v", err) // the plan is signed
		}
		if x.who.dry {
			return a.show(state, func() { state.WritePlan(a.out, plan, at) })
		}
		return a.show(state, func() {
			state.Write(a.out)
			if len(held) > 0 {
				a.say("%s held: they stay as they are, unless that ends before their wave", plain.Count(len(held), "node"))
			}
			a.say("nothing is published yet: 'caisson rollout run' does it, wave by wave")
		})
	})
	c.Flags().StringVar(&layer, "layer", "current", "the layer: a `TAG`, or the digest of its index or manifest")
	secrets.flags(c.Flags())
	x.flags(a, c.Flags(), "the fleet in `REF` instead of the site's registry")
	c.Flags().Lookup("dry-run").Usage = "show waves and dates, and sign nothing"
	return c
}

func (a *app) rolloutStatusCommand() *cobra.Command {
	var look looking
	c := verb("rollout status", func(c *cobra.Command, args []string) error {
		fleet, err := look.open(c.Context(), a, args[0])
		if err != nil {
			return err
		}
		states, err := rollout.States(c.Context(), fleet)
		if err != nil {
			return err
		}
		if len(args) == 2 {
			states = slices.DeleteFunc(states, func(s rollout.State) bool { return s.Name != args[1] })
			if len(states) == 0 {
				return cli.Usage("without a name all are listed", "the fleet has no rollout %q", args[1])
			}
		}
		return printEach(a, server.Rollouts{Rollouts: states}, states)
	})
	look.flags(a, c.Flags())
	return c
}

// rolloutVerb is one that an operator uses while a rollout is under way, or after.
func (a *app) rolloutVerb(act rollout.Verb) *cobra.Command {
	var why changer
	var x changing
	c := verb("rollout "+string(act), func(c *cobra.Command, args []string) error {
		if act == rollout.Undo && why.reason == "" {
			return errNoReason
		}
		p, err := x.publisher(a, args[0])
		if err != nil {
			return err
		}
		if p.Trust == nil {
			return trustsNobody(args[0])
		}
		result, err := rollout.Do(c.Context(), p, *p.Trust, why.by(), args[1], act)
		if err != nil {
			return err
		}
		for _, name := range plain.Names(maps.Keys(result.Stay)) {
			a.say("node %s does not go back: %s", name, result.Stay[name])
		}
		return a.published(args[0], result, nil)
	})
	f := c.Flags()
	why.flags(f)
	x.flags(a, f)
	return c
}
