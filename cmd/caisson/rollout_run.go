// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/analysis"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

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
		var what rollout.Decision
		switch _, what, err = d.Step(limited); {
		case rollout.Ended(err):
			a.say("rollout %s has ended", name)
		case err == nil && what.Act == rollout.Wait:
			d.Say("%s", what.Reason)
		case err == nil && what.Act == rollout.Halt:
			err = fmt.Errorf("%w: %s", rollout.ErrHalted, what.Reason)
		}
	} else {
		err = d.Run(limited, x.interval)
	}
	return errors.Join(a.printRun(ctx, r, name), ended(a, err))
}

// driver drives the rollout of a name, by what the fleet's service says of its nodes.
func (x *runFlags) driver(by publish.By, a *app, r *publication, name string, files []string) (*rollout.Driver, error) {
	var reporters *rollout.Reporters
	var err error
	if x.unsigned {
		a.say("what the service says of nodes is believed without their signatures")
	} else if reporters, err = rollout.OpenReporters(cmp.Or(x.reporters,
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
	d := &rollout.Driver{Publisher: *r.p, Policy: r.policy, By: by, Name: name, Say: a.say, Now: now,
		Reports: func(ctx context.Context, asked rollout.Asked) (map[string]rollout.Report, error) {
			return x.service.reports(ctx, asked, reporters)
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
			nodes, err := r.p.Compile(ctx, s, r.policy, plan.Reference)
			if err != nil {
				return nil, err
			}
			moved := slices.DeleteFunc(slices.Clone(nodes), func(n publish.Node) bool { return rollout.GivenBy(plan, n.Name) == "" })
			return nodes, r.askKept(ctx, a, s, source, plan.Reference, moved)
		},
		First: func(ctx context.Context) error {
			if len(planned.Services().List) == 0 {
				return nil
			}
			return source.Push(ctx, r.p.Registry, planned)
		}}
	if x.who.dry {
		d.Say = func(format string, args ...any) { a.say("dry run: "+format, args...) }
	}
	return d, nil
}

// printRun prints how far the rollout is after a run, for programs: people were told.
func (a *app) printRun(ctx context.Context, r *publication, name string) error {
	if !a.json() {
		return nil
	}
	f, err := r.p.Read(ctx, r.policy)
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

// reports returns what nodes reported last: those of the waves that are asked for, where
// the service knows the plan, and else all; where by is nil as the service says. Another fleet's service is an error.
func (x *asking) reports(ctx context.Context, asked rollout.Asked, by *rollout.Reporters) (all map[string]rollout.Report, err error) {
	if !x.known {
		s, err := x.Summary(ctx)
		if err != nil {
			return nil, err
		}
		if s.Name != "" && s.Name != asked.Fleet {
			return nil, cli.WithHint(fmt.Errorf("the service serves fleet %s, the rollout is for fleet %s", s.Name,
				asked.Fleet), "name another service with --at")
		}
		x.known = s.Name != ""
	}
	err = x.Stream(ctx, http.MethodGet, "/v1/reports?"+asked.Query(by), "", func(r io.Reader) error {
		all, err = rollout.ReadReports(r, asked, by, now())
		return err
	})
	return all, err
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
	case err == nil || rollout.Ended(err):
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
