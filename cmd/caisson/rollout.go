// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/fleet/analysis"
	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

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
func (x *publishing) open(a *app, s *site.Site, file, expires string, mayMake bool) (r *preview.Preview, err error) {
	r = &preview.Preview{Site: s}
	if x.to = cmp.Or(x.to, s.Registry()); x.to == "" {
		return nil, cli.Usage("give --to, or registry: in the site", "no registry to publish to")
	}
	if r.Policy, err = policy.Site(s, expires); err != nil {
		return nil, err
	}
	by, err := x.who.load(a, s.Trust().Operator)
	if err != nil {
		return nil, err
	}
	if r.Publisher, err = x.destination.open(a, file, by, mayMake && !s.HasLayer()); err == nil {
		r.Publisher.Dry = x.who.dry
	}
	return r, err
}

// services verifies what is to be published of services, before anything is signed that names them.
func (x *publishing) services(ctx context.Context, a *app, r *preview.Preview) (*content.Source, error) {
	if err := r.Publisher.MayPublish(r.Policy); err != nil {
		return nil, err
	}
	source, err := a.source(x.cache)
	if err != nil {
		return nil, err
	}
	return source, verifyServices(ctx, source, r.Publisher, r.Policy, r.Site)
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
		sealer, err := secrets.open(c.Context(), &fromCluster{}, r.Site, nil, !x.who.dry)
		if err = a.sealed(sealer, x.who.dry, err); err != nil {
			return err
		}
		r.Layer = layer
		o, err := r.Order(c.Context(), args[0], at)
		if err != nil {
			return err
		}
		if err := a.askKept(c.Context(), *r, source, layer, o.Nodes); err != nil {
			return err
		}
		var plan *spec.RolloutPlan
		var held map[string]string
		if x.who.dry {
			plan, held, err = rollout.Preview(c.Context(), r.Publisher, r.Policy, o)
		} else {
			plan, held, err = rollout.Start(c.Context(), r.Publisher, r.Policy, x.why.of(c.Context(), a, r.Site), o)
		}
		if err != nil {
			return err
		}
		state := rollout.StateOf(plan, spec.Rollout{Phase: spec.RolloutRunning, Since: at.Unix()})
		state.LeaveOut(held)
		if err := state.Unrehearsed(c.Context(), r.Publisher, r.Policy, plan, o.Nodes); err != nil {
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
		return x.change(a, args[0], func(p *publish.Publisher) (*publish.Result, error) {
			if p.Trust == nil {
				return nil, trustsNobody(args[0])
			}
			result, err := act.Do(c.Context(), p, *p.Trust, why.by(), args[1])
			if err == nil {
				for _, name := range plain.Names(maps.Keys(result.Stay)) {
					a.say("node %s does not go back: %s", name, result.Stay[name])
				}
			}
			return result, err
		})
	})
	f := c.Flags()
	why.flags(f)
	x.flags(a, f)
	return c
}

// runFlags are the flags of rollout run.
type runFlags struct {
	publishing
	service            asking
	interval, patience time.Duration
	once, unsigned     bool
	reporters          string
	prometheus         string
}

func (a *app) rolloutRunCommand() *cobra.Command {
	var x runFlags
	c := verb("rollout run", func(c *cobra.Command, args []string) error { return x.run(c.Context(), a, args[0], args[1:]) })
	f := c.Flags()
	x.service.flags(f)
	f.DurationVar(&x.interval, "interval", 30*time.Second, "look again after so long")
	f.DurationVar(&x.patience, "for", 24*time.Hour, "end after so long; the next run goes on")
	f.BoolVar(&x.once, "once", false, "take the next step, if there is one now, and end: for a timer")
	f.StringVar(&x.reporters, "reporters", "", "`FILE` that keeps by which keys nodes report (caisson.reporters beside the site when empty)")
	f.BoolVar(&x.unsigned, "unsigned-reports", false,
		"believe what the service says of nodes without their signatures, which that of an earlier release does not hand out")
	f.StringVar(&x.prometheus, "prometheus", "", "`URL` of the Prometheus that analyses of the rollout ask ($CAISSON_PROMETHEUS)")
	x.flags(a, c.Flags(), "the fleet in `REF` instead of the site's registry")
	c.Flags().Lookup("dry-run").Usage = "say what the next step would be, if there is one now, and take none; it takes no key"
	return c
}

func (x *runFlags) run(ctx context.Context, a *app, name string, files []string) error {
	if x.interval <= 0 {
		return cli.Usage("", "--interval is above 0")
	}
	limited, cancel := context.WithTimeout(ctx, x.patience)
	defer cancel()
	// Its maintenance is expanded as for the plan once that is read.
	s, err := a.loadSiteAt(now(), files...)
	if err != nil {
		return err
	}
	r, err := x.open(a, s, files[0], "", false)
	if err != nil {
		return err
	}
	d, err := x.driver(x.why.of(ctx, a, s), a, r, name, files)
	if err != nil {
		return err
	}
	if x.once || x.who.dry {
		if err = d.Once(limited); errors.Is(err, rollout.ErrEnded) {
			a.say("rollout %s has ended", name)
		}
	} else {
		err = d.Run(limited, x.interval)
	}
	return errors.Join(a.printRun(ctx, r, name), ended(a, err))
}

// driver drives the rollout of a name, by what the fleet's service says of its nodes.
func (x *runFlags) driver(by publish.By, a *app, r *preview.Preview, name string, files []string) (*rollout.Driver, error) {
	var reporters *report.Reporters
	var err error
	if x.unsigned {
		a.say("what the service says of nodes is believed without their signatures")
	} else if reporters, err = report.OpenReporters(cmp.Or(x.reporters,
		filepath.Join(filepath.Dir(files[0]), "caisson.reporters")), x.who.dry); err != nil {
		return nil, err
	}
	var measure func(context.Context, spec.Analysis, time.Time) (analysis.Measured, error)
	if at := cmp.Or(x.prometheus, os.Getenv("CAISSON_PROMETHEUS")); at != "" {
		asked, err := analysis.Open(at)
		if err != nil {
			return nil, cli.Usage("as in --prometheus https://prometheus.example.org", "%w", err)
		}
		measure = asked.Measure
	}
	source, err := a.source(x.cache)
	if err != nil {
		return nil, err
	}
	var planned *site.Site
	d := &rollout.Driver{Publisher: *r.Publisher, Policy: r.Policy, By: by, Name: name, Say: a.say, Now: now,
		Reports: func(ctx context.Context, asked report.Asked) (map[string]report.Standing, error) {
			return x.service.Reports(ctx, asked, reporters, now())
		},
		Slots: x.service.slots, Measure: measure,
		Compile: func(ctx context.Context, plan *spec.RolloutPlan) ([]publish.Node, error) {
			s, err := a.loadSiteAt(time.Unix(plan.At, 0).UTC(), files...)
			if err != nil {
				return nil, err
			}
			planned = s
			if err := sealedOnly(s); err != nil {
				return nil, err
			}
			nodes, err := r.Publisher.Compile(ctx, s, r.Policy, plan.Reference)
			if err != nil {
				return nil, err
			}
			moved := slices.DeleteFunc(slices.Clone(nodes), func(n publish.Node) bool { return plan.Gives(n.Name) == "" })
			return nodes, a.askKept(ctx, preview.Preview{Site: s, Publisher: r.Publisher, Policy: r.Policy}, source, plan.Reference, moved)
		},
		First: func(ctx context.Context) error {
			if len(planned.Services().List) == 0 {
				return nil
			}
			return source.Push(ctx, r.Publisher.Registry, planned)
		}}
	if x.who.dry {
		d.Say = func(format string, args ...any) { a.say("dry run: "+format, args...) }
	}
	return d, nil
}

// printRun prints how far the rollout is after a run, for programs: people were told.
func (a *app) printRun(ctx context.Context, r *preview.Preview, name string) error {
	if !a.json() {
		return nil
	}
	f, err := r.Publisher.Read(ctx, r.Policy)
	if err != nil {
		return err
	}
	states, err := rollout.States(ctx, f)
	if err != nil {
		return err
	}
	states = slices.DeleteFunc(states, func(s rollout.State) bool { return s.Name != name })
	return cli.JSON(a.out, server.Rollouts{Rollouts: states})
}

// slots returns the nodes that hold a slot, with its group.
func (x *asking) slots(ctx context.Context) (map[string]string, error) {
	var s server.Slots
	if err := x.Get(ctx, "/v1/slots", &s); err != nil {
		return nil, err
	}
	held := map[string]string{}
	for _, g := range s.Groups {
		for _, l := range g.Held {
			held[l.Node] = "slot of " + g.Name
		}
	}
	return held, nil
}

// ended returns how a run exits: the end that everybody wants is not an error, and what halted
// was said.
func ended(a *app, err error) error {
	switch {
	case err == nil || errors.Is(err, rollout.ErrEnded):
		return nil
	case errors.Is(err, rollout.ErrLeftOut):
		a.say("%v; 'caisson rollout status' names all of them", err)
		return cli.ErrDrift
	case errors.Is(err, rollout.ErrHalted):
		a.say("%v; 'caisson rollout status' names the nodes; 'resume' tries the wave again, 'undo' and 'abort' end it", err)
		return cli.ErrDrift
	}
	return err
}
