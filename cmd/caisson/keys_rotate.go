// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/site"
)

// rotating is a change of a site's keys: the flags, and what was read.
type rotating struct {
	destination
	release, epoch, layers, reason string
	root, lose                     []string
	revoke, dry, looks             bool // looks: it signs nothing
	anew, yes                      bool // the chain is given up for another one, though nodes follow it
	who                            signers
	service                        asking

	site   *site.Site
	policy publish.Policy
}

func (a *app) keysRotateCommand() *cobra.Command {
	var r rotating
	c := verb("keys rotate", func(c *cobra.Command, args []string) error { return r.run(c.Context(), a, args) })
	r.flags(a, c)
	r.dryFlag(c)
	c.Flags().BoolVar(&r.anew, "begin-anew", false, "begin another chain, with the site's root keys alone: for root keys "+
		"that are lost or stolen; nodes follow it once they boot by boot files that are written again")
	c.Flags().BoolVar(&r.yes, "yes", false, "begin anew though nodes are left behind until then")
	return c
}

func (a *app) keysRevokeCommand() *cobra.Command {
	r := rotating{revoke: true}
	c := verb("keys revoke", func(c *cobra.Command, args []string) error { return r.run(c.Context(), a, args) })
	r.flags(a, c)
	r.dryFlag(c)
	c.Flags().StringVar(&r.layers, "layers", "", "`DIGEST` of the index that layer:current leads to, to sign it again on "+
		"your word: where a release key was stolen and caisson.memory does not have it, whoever has the key may have made it current")
	return c
}

func (r *rotating) dryFlag(c *cobra.Command) {
	c.Flags().BoolVarP(&r.dry, "dry-run", "n", false, "do as 'keys rehearse' does: make it in memory, with all keys, and write nothing")
}

func (r *rotating) flags(a *app, c *cobra.Command) {
	f := c.Flags()
	r.destination.flags(a, f, toSite)
	f.StringArrayVar(&r.root, "root-key", nil, "sign the version with the root key in `FILE` or of command:CMD; those of "+
		"both versions, as many as their thresholds")
	f.StringVar(&r.release, "release-key", "", "sign layers with the release key in `FILE` or of command:CMD, where release keys change")
	f.StringVar(&r.epoch, "epoch-key", "", "permit the present epoch with the epoch key in `FILE` or of command:CMD, where epoch keys change")
	f.StringVar(&r.reason, "reason", "", "why, for people")
	f.StringArrayVar(&r.lose, "lose", nil, "go on though `NODE` refuses what is published after this, until it boots by "+
		"a loader that follows the keys")
	r.service.flags(f)
	r.who.keyFlags(f)
}

// open reads the site and connects to where it is published.
func (r *rotating) open(a *app, names []string) (*publish.Publisher, error) {
	var err error
	if r.site, err = a.loadNamed(names...); err != nil {
		return nil, err
	}
	if r.policy, err = policy.Site(r.site, ""); err != nil {
		return nil, err
	}
	if len(r.policy.Root) == 0 {
		return nil, cli.Usage("'caisson keys generate keys/root' makes one; trust.keys.root of the site names its public half",
			"the site names no root key")
	}
	r.to = cmp.Or(r.to, r.site.Registry())
	if r.to == "" {
		return nil, cli.Usage("give --to, or registry: in the site", "the site has no registry")
	}
	var by []crypto.Signer
	if !r.looks {
		if by, err = r.who.load(a, r.site.Trust().Operator); err != nil {
			return nil, err
		}
	}
	p, err := r.destination.open(a, names[0], by, true)
	if err == nil {
		p.Dry = r.dry
	}
	return p, err
}

func (r *rotating) run(ctx context.Context, a *app, names []string) error {
	if r.revoke && r.reason == "" {
		return errNoReason
	}
	p, err := r.open(a, names)
	if err != nil {
		return err
	}
	root, err := keys.Signers(r.root, &r.who.passphrase)
	if err != nil {
		return err
	}
	if len(root) == 0 {
		if root, err = keys.Signers(keys.Beside(r.site.Trust().Root), &r.who.passphrase); err != nil {
			return err
		}
	}
	if len(root) == 0 {
		return cli.Usage("give --root-key", "no root key to sign with")
	}
	if r.policy.Chain == nil || r.anew {
		return r.first(ctx, a, p, root)
	}
	if renamed := r.policy.SameFleet(); renamed != nil {
		if tags, err := p.Registry.Tags(ctx, oci.RepoFleet); len(tags) > 0 || err != nil && !errors.Is(err, oci.ErrNotFound) {
			return errors.Join(renamed, err)
		}
		a.say("%v: nothing is published at %s, so they begin again", renamed, r.to)
		return r.first(ctx, a, p, root)
	}
	current, err := p.Follow(ctx, r.policy, false)
	if err != nil {
		return err
	}
	if err := r.write(current.Chain); err != nil {
		return err
	}
	out, next, err := r.policy.NextKeys(current.Chain, r.revoke, r.reason, now())
	if err != nil {
		return err
	}
	if len(out.Changes) == 0 {
		out.Version-- // a run that was cut may have left fleet:current behind it
	}
	if r.layers != "" && !oci.ValidDigest(r.layers) {
		return cli.Usage("sha256: and 64 hex digits", "--layers: %q is not a digest", r.layers)
	}
	rotation := publish.Rotation{By: publish.By{Author: self(), Reason: r.reason}, Next: next, Root: root, Layers: r.layers, Lose: r.lose}
	if rotation.Known, err = r.service.keysKnown(ctx); err != nil {
		return err
	}
	if rotation.Release, err = openOne(r.release, &r.who.passphrase); err != nil {
		return err
	}
	if rotation.Epoch, err = openOne(r.epoch, &r.who.passphrase); err != nil {
		return err
	}
	c, result, err := p.Rotate(ctx, r.policy, rotation)
	if err != nil {
		return ofRoots(err, out.Changes)
	}
	switch {
	case result != nil:
	case r.revoke:
		a.say("nothing to revoke: version %d already has the site's keys. If another key was stolen, put a new one in its "+
			"place in trust.keys first", out.Version)
		return nil
	default:
		a.say("version %d has the site's keys: nothing to do", out.Version)
		return nil
	}
	out.Signed, out.DryRun = len(result.Resigned)+len(result.Published), p.Dry
	if !p.Dry {
		if err := r.write(c); err != nil {
			return err
		}
	}
	return a.printTold(out)
}

// ofRoots adds to a refusal, where root keys change, that those of before sign, too: an operator who lost
// them comes this far.
func ofRoots(err error, changes []publish.RoleChange) error {
	var refused *refusal.Refusal
	if !errors.As(err, &refused) || !slices.ContainsFunc(changes, func(c publish.RoleChange) bool { return c.Role == "root" }) {
		return err
	}
	return cli.WithHint(err, "root keys change: enough of those before sign, too, and enough of the new ones, each with "+
		"--root-key; where those before are lost or stolen, see --begin-anew")
}

// first makes the version that boot files begin the chain with: version 1, or where another
// chain is given up, the one after its newest. Nodes that follow that one see a version that
// they cannot accept, and keep to what they run.
func (r *rotating) first(ctx context.Context, a *app, p *publish.Publisher, root []crypto.Signer) error {
	there, previous, err := p.NewestKeys(ctx)
	if err != nil {
		return err
	}
	if there > 0 && !r.anew {
		return cli.Usage("take "+filepath.Base(r.site.Trust().Chain)+
			" from where the site was last published; where the root keys are lost or stolen, see --begin-anew",
			"%s has version %d of the keys, and there is no file of them beside the site", p.Registry.Ref(), there)
	}
	if r.policy.Chain != nil && r.policy.SameFleet() == nil { // what a thief has put behind it is not followed
		there, previous = max(there, r.policy.Chain.Version()), r.policy.Chain.Newest().Digest
	}
	left, err := r.leaves(ctx, p, root)
	if err != nil {
		return err
	}
	doc := spec.Keys{APIVersion: spec.APIVersion, Kind: spec.KindKeys, Fleet: r.site.Name(), Version: there + 1,
		Previous: previous, Roles: r.policy.Roles(), Reason: r.reason, At: now()}
	candidate, err := publish.SignKeys(doc, root)
	if err != nil {
		return err
	}
	c, err := chain.First(candidate)
	if err != nil {
		return err
	}
	out := publish.KeysChange{Fleet: doc.Fleet, Version: doc.Version, Revoked: []string{}, Left: left, DryRun: r.dry}
	if out.Changes, err = publish.CompareRoles(spec.Roles{}, doc.Roles); err != nil {
		return err
	}
	if !r.dry {
		if err := r.setAside(a); err != nil {
			return err
		}
		if err := r.write(c); err != nil {
			return err
		}
		a.say("%s: 'caisson publish' and 'caisson refresh' publish it; nodes follow it once their boot files are written again",
			r.site.Trust().Chain)
	}
	return a.printTold(out)
}

// leaves counts the nodes that follow the chain that is given up, and wants a word of the operator
// where there are any.
func (r *rotating) leaves(ctx context.Context, p *publish.Publisher, root []crypto.Signer) (int, error) {
	if !r.anew || r.policy.Chain == nil {
		return 0, nil
	}
	n, err := p.Followers(ctx, r.policy, root)
	if err != nil || n == 0 || r.yes || r.dry {
		return n, err
	}
	return 0, cli.Usage("--yes goes on; look with --dry-run",
		"begin anew: %s would be left behind: each would refuse what is published after this until it boots by boot files "+
			"that are written again", plain.Count(n, "node"))
}

// setAside keeps the file of a chain that is given up: it says who signed what nodes run.
func (r *rotating) setAside(a *app) error {
	if r.policy.Chain == nil {
		return nil
	}
	old := r.site.Trust().Chain + ".old"
	if err := durable.WriteFile(old, r.policy.Chain.Marshal(), 0o644); err != nil {
		return fmt.Errorf("keep the keys of before: %w", err)
	}
	a.say("%s has the chain that is given up", old)
	r.policy.Chain = nil
	return nil
}

// write keeps the chain beside the site.
func (r *rotating) write(c *chain.Chain) error {
	if r.dry || r.policy.Chain != nil && c.Version() == r.policy.Chain.Version() {
		return nil
	}
	if err := durable.WriteFile(r.site.Trust().Chain, c.Marshal(), 0o644); err != nil {
		return fmt.Errorf("keep the keys: %w", err)
	}
	r.policy.Chain = c
	return nil
}

func openOne(source string, pass *keys.Passphrase) (crypto.Signer, error) {
	if source == "" {
		return nil, nil
	}
	return keys.Signer(source, pass)
}

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

// keysKnown returns what hear tells of the nodes that have reported.
func (x *asking) keysKnown(ctx context.Context) (map[string]*spec.KeysKnown, error) {
	all := map[string]*spec.KeysKnown{}
	return all, x.hear(ctx, func(node string, known *spec.KeysKnown, reported bool) {
		if reported {
			all[node] = known
		}
	})
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
