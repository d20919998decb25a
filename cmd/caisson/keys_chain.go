// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
)

func (a *app) keysPlanCommand() *cobra.Command {
	r := rotating{looks: true}
	var service asking
	c := verb("keys plan", func(c *cobra.Command, args []string) error {
		p, now, err := r.follow(c.Context(), a, args, "'caisson keys rotate' makes the first one")
		if err != nil {
			return err
		}
		change, _, err := r.policy.NextKeys(now.Chain, false, "", time.Time{})
		if err != nil {
			return err
		}
		out, err := p.PlanKeys(c.Context(), now, change)
		if err != nil {
			return err
		}
		if err := service.hear(c.Context(), out.Hear); err != nil {
			return err
		}
		return cmp.Or(a.show(out, func() {
			out.Write(a.out)
			a.say("fleet %s is at version %d of the keys", out.Fleet, out.Version)
			if out.Silent > 0 {
				a.say("%s did not report a key version", plain.Count(out.Silent, "node"))
			}
		}), drift(out.Due()))
	})
	f := c.Flags()
	service.flags(f)
	r.looking(a, f, toSite)
	return c
}

// follow opens the site and returns the policy with the keys that count now; hint is for a
// site that has no version of them.
func (r *rotating) follow(ctx context.Context, a *app, names []string, hint string) (*publish.Publisher, publish.Policy, error) {
	p, err := r.open(a, names)
	if err != nil {
		return nil, publish.Policy{}, err
	}
	if r.policy.Chain == nil {
		return nil, publish.Policy{}, cli.Usage(hint, "the site has no version of the keys yet")
	}
	now, err := p.Follow(ctx, r.policy, false)
	return p, now, err
}

// hear tells each node with what it has reported of the keys that it knows, none where nobody said
// where the service is.
func (x *asking) hear(ctx context.Context, tell func(node string, known *spec.KeysKnown, reported bool)) error {
	if !x.Named() {
		return nil
	}
	list, err := x.Nodes(ctx, url.Values{})
	for _, l := range list.Nodes {
		tell(l.Name, l.Keys, !l.Received.IsZero())
	}
	return err
}

func (a *app) keysRehearseCommand() *cobra.Command {
	r := rotating{dry: true}
	c := verb("keys rehearse", func(c *cobra.Command, args []string) error { return r.run(c.Context(), a, args) })
	r.flags(a, c)
	return c
}

func (a *app) keysPullCommand() *cobra.Command {
	r := rotating{looks: true}
	c := verb("keys pull", func(c *cobra.Command, args []string) error {
		p, now, err := r.follow(c.Context(), a, args, "take caisson.keys from whoever made the first version: nothing else says whose it is")
		for errors.Is(err, chain.ErrLong) { // each is signed by root keys: it ends
			if err := r.write(now.Chain); err != nil {
				return err
			}
			now, err = p.Follow(c.Context(), r.policy, false)
		}
		if now.Chain != nil { // what could be had is kept, whatever came after it
			err = errors.Join(err, r.write(now.Chain))
		}
		if err != nil {
			return err
		}
		a.say("%s has version %d", r.site.Trust().Chain, now.Chain.Version())
		return a.printChain(now.Chain)
	})
	r.looking(a, c.Flags(), toSite)
	return c
}

func (a *app) printChain(c *chain.Chain) error {
	all, err := publish.VersionsOf(c)
	if err != nil {
		return err
	}
	return a.print(all)
}
