// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// serviceToken is the variable with a token for a fleet service.
const serviceToken = "CAISSON_FLEET_TOKEN"

func (a *app) rolloutRunCommand() *cobra.Command {
	var x rollingFlags
	var service string
	var ca []string
	var interval, patience time.Duration
	var once bool
	c := &cobra.Command{
		Use:   "run NAME FILE…",
		Short: "Publish a rollout wave by wave",
		Long: "Publish a rollout wave by wave: a wave begins when the one before it is well, as its nodes report to the fleet\n" +
			"service. It ends with the rollout, or when that halts (exit code 3). Cut anywhere it goes on with the next run,\n" +
			"here or elsewhere; of two at once each takes the steps that the other has not taken. The site must be what it\n" +
			"was when the plan was signed.\n\n" +
			"The service is asked with the token in " + serviceToken + ". What it says can hold a wave back, or let the next\n" +
			"signed one come; nodes obey signatures alone.\n\n" + signerHelp,
		Example: "  caisson rollout run racks site.yaml --service https://fleet.example.org --key keys/operator.key",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if service == "" {
				return cli.Usage("'caisson fleet serve' is one", "no fleet service: give --service")
			}
			ctx, cancel := context.WithTimeout(c.Context(), patience)
			defer cancel()
			// Its maintenance is expanded as for the plan once that is read.
			r, err := x.open(a, now(), true, args[1:])
			if err != nil {
				return err
			}
			from, err := fleetService(service, ca)
			if err != nil {
				return err
			}
			d := &rollout.Driver{Publisher: *r.p, Policy: r.policy, By: x.why.by(), Name: args[0], Say: a.say, Now: now,
				Reports: func(ctx context.Context) (map[string]rollout.Report, error) {
					ctx, cancel := context.WithTimeout(ctx, time.Minute)
					defer cancel()
					return from.Reports(ctx)
				},
				Compile: func(ctx context.Context, plan *spec.RolloutPlan) ([]publish.Node, error) {
					s, err := a.loadSiteAt(time.Unix(plan.At, 0).UTC(), args[1:]...)
					if err != nil {
						return nil, err
					}
					return r.p.Compile(ctx, s, r.policy, plan.Reference)
				}}
			if once {
				_, what, err := d.Step(ctx)
				if err == nil && what.Act == rollout.Wait {
					a.say("%s", what.Reason)
				}
				return ended(a, err)
			}
			return ended(a, d.Run(ctx, interval))
		},
	}
	f := c.Flags()
	f.StringVar(&service, "service", "", "the fleet service at `URL`")
	f.StringArrayVar(&ca, "service-ca", nil, "trust only the PEM certificate authorities in `FILE` for the service")
	f.DurationVar(&interval, "interval", 30*time.Second, "look again after so long")
	f.DurationVar(&patience, "for", 24*time.Hour, "end after so long; the next run goes on")
	f.BoolVar(&once, "once", false, "take the next step, if there is one now, and end: for a timer")
	x.flags(a, c)
	return c
}

// fleetService opens a fleet service, with the token of the environment.
func fleetService(address string, ca []string) (*rollout.Service, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, cli.Usage("as in https://fleet.example.org", "%q is not the address of a service", address)
	}
	var o registry.Options
	for _, name := range ca {
		pem, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("certificate authority: %w", err)
		}
		o.CAs = append(o.CAs, string(pem))
	}
	t, err := registry.Transport(u.Host, o)
	if err != nil {
		return nil, err
	}
	return &rollout.Service{URL: address, Token: os.Getenv(serviceToken), Client: &http.Client{Transport: t}}, nil
}

// ended is how a run exits: the end that everybody wants is none, and what halted was
// said.
func ended(a *app, err error) error {
	switch {
	case err == nil || rollout.Ended(err):
		return nil
	case errors.Is(err, rollout.ErrHalted):
		a.say("%v; 'caisson rollout status' names the nodes; 'resume' tries the wave again, 'undo' and 'abort' end it", err)
		return cli.ErrDrift
	}
	return err
}
