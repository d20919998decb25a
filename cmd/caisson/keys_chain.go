// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/sign"
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
		out, _, err := r.next(now)
		if err != nil {
			return err
		}
		return a.printKeysPlan(c, p, now, out, &service)
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

// keysPlan is the output of keys plan -o json.
type keysPlan struct {
	Fleet   string               `json:"fleet"`
	Version uint64               `json:"version"` // that counts
	Changes []publish.RoleChange `json:"changes"`
	Older   []string             `json:"older"` // nodes whose layer's agent does not follow the chain

	Behind []nodeKeys `json:"behind"`           // as the fleet's service was told
	Silent int        `json:"silent,omitempty"` // nodes that have not reported their keys
}

// nodeKeys holds what a node has reported of the keys that it knows.
type nodeKeys struct {
	Node string `json:"node"`
	spec.KeysKnown
}

func (n nodeKeys) String() string {
	if n.Version == 0 {
		return "its boot files begin no chain of keys, and it follows none: write them again"
	}
	if n.Forgets {
		return fmt.Sprintf("its boot files are of version %d, and it keeps nothing else: write them again", n.BootFiles)
	}
	return fmt.Sprintf("it knows version %d", n.Version)
}

// ask adds what nodes have reported.
func (k *keysPlan) ask(ctx context.Context, service *asking) error {
	list, err := service.Nodes(ctx, url.Values{})
	if err != nil {
		return err
	}
	for _, l := range list.Nodes {
		switch {
		case slices.Contains(k.Older, l.Name) && l.Keys == nil:
		case l.Keys == nil && l.Received.IsZero():
			k.Silent++
		case l.Keys == nil:
			k.Behind = append(k.Behind, nodeKeys{Node: l.Name})
		case l.Keys.Behind(k.Version):
			k.Behind = append(k.Behind, nodeKeys{l.Name, *l.Keys})
		}
	}
	return nil
}

// keysKnown returns what nodes have reported of the keys that they know, none where nobody said
// where the service is.
func (x *asking) keysKnown(ctx context.Context) (map[string]*spec.KeysKnown, error) {
	if !x.Named() {
		return nil, nil
	}
	list, err := x.Nodes(ctx, url.Values{})
	if err != nil {
		return nil, err
	}
	out := map[string]*spec.KeysKnown{}
	for _, l := range list.Nodes {
		if !l.Received.IsZero() {
			out[l.Name] = l.Keys
		}
	}
	return out, nil
}

func (a *app) printKeysPlan(c *cobra.Command, p *publish.Publisher, now publish.Policy, next keysChanged, service *asking) error {
	out := keysPlan{Fleet: next.Fleet, Version: now.Chain.Version(), Changes: next.Changes, Older: []string{}, Behind: []nodeKeys{}}
	if out.Changes == nil {
		out.Changes = []publish.RoleChange{}
	}
	now.Site = false
	found, err := p.Find(c.Context(), now)
	if err != nil {
		return err
	}
	if out.Older, err = found.WithoutFeature(c.Context(), spec.KeyChainFeature); err != nil {
		return err
	}
	if service.Named() {
		if err := out.ask(c.Context(), service); err != nil {
			return err
		}
	}
	return cmp.Or(a.show(out, func() {
		for _, change := range out.Changes {
			cli.Printf(a.out, "%s\n", change)
		}
		for _, name := range out.Older {
			cli.Printf(a.out, "%s\tits layer's agent does not follow the chain: it takes new keys at its next boot\n", name)
		}
		for _, n := range out.Behind {
			cli.Printf(a.out, "%s\t%s\n", n.Node, n)
		}
		a.say("fleet %s is at version %d of the keys", out.Fleet, out.Version)
		if out.Silent > 0 {
			a.say("%s did not report a key version", plain.Count(out.Silent, "node"))
		}
	}), drift(len(out.Changes)+len(out.Older)+len(out.Behind) > 0))
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

// chainVersion is a version in what keys show and pull -o json print.
type chainVersion struct {
	Version uint64              `json:"version"`
	At      time.Time           `json:"at"`
	Reason  string              `json:"reason,omitempty"`
	Digest  string              `json:"digest"`
	Roles   map[string][]string `json:"roles"`   // ids of keys
	Revoked []string            `json:"revoked"` // ids, of this version and those before it
}

func (a *app) printChain(c *chain.Chain) error {
	var all []chainVersion
	for _, l := range c.Links() {
		v := chainVersion{Version: l.Keys.Version, At: l.Keys.At, Reason: l.Keys.Reason, Digest: l.Digest,
			Roles: map[string][]string{}, Revoked: append([]string{}, l.Keys.Revoked...)}
		for _, r := range l.Keys.Roles.All() {
			keys, err := sign.ParsePublics(r.Role.Keys)
			if err != nil {
				return err
			}
			for _, k := range keys {
				v.Roles[r.Name] = append(v.Roles[r.Name], k.ID())
			}
		}
		all = append(all, v)
	}
	return a.show(all, func() {
		for i, v := range all {
			cli.Printf(a.out, "version %d\t%s\t%s\n", v.Version, v.At.Format(time.RFC3339), v.Reason)
			for _, r := range c.Links()[i].Keys.Roles.All() {
				for _, id := range v.Roles[r.Name] {
					cli.Printf(a.out, "  %-12s%s\n", r.Name, id)
				}
			}
			for _, id := range v.Revoked {
				if i == 0 || !slices.Contains(all[i-1].Revoked, id) {
					cli.Printf(a.out, "  %-12s%s\n", "revoked", id)
				}
			}
		}
	})
}
