// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/rotate"
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

// Change makes the keys that a site names those that count where it is published.
type Change struct {
	To     string // where the site is published, as it is named
	Reason string // for people

	Root           []string // sources of the root keys that sign; those beside the site when empty
	Release, Epoch string   // sources of the keys that sign again, where their roles change
	Passphrase     *keys.Passphrase
	Known          func(context.Context) (map[string]*spec.KeysKnown, error) // which keys nodes report

	Layers string   // digest of the index that layer:current is to lead to
	Lose   []string // nodes that may be lost
	Revoke bool     // sign again what the former keys signed
	Anew   bool     // the chain is given up for another one, though nodes follow it
	Yes    bool     // whatever nodes follow it

	site *site.Site
	now  published.Policy // of the site, with the versions beside it
	p    *publish.Publisher
}

// Read reads what the site says of its keys, and where it is published unless that is named.
func (c *Change) Read(s *site.Site) (err error) {
	c.site = s
	if c.now, err = Site(s, ""); err != nil {
		return err
	}
	if len(c.now.Root) == 0 {
		return cli.Usage("'caisson keys generate keys/root' makes one; trust.keys.root of the site names its public half",
			"the site names no root key")
	}
	if c.To = cmp.Or(c.To, s.Registry()); c.To == "" {
		return cli.Usage("give --to, or registry: in the site", "the site has no registry")
	}
	return nil
}

// Run makes the next version of the keys, and returns nil where there is nothing to do.
func (c *Change) Run(ctx context.Context, p *publish.Publisher) (*KeysChange, error) {
	c.p = p
	root, err := keys.Signers(c.Root, c.Passphrase)
	if err != nil {
		return nil, err
	}
	if len(root) == 0 {
		if root, err = keys.Signers(keys.Beside(c.site.Trust().Root), c.Passphrase); err != nil {
			return nil, err
		}
	}
	if len(root) == 0 {
		return nil, cli.Usage("give --root-key", "no root key to sign with")
	}
	if c.now.Chain == nil || c.Anew {
		return c.first(ctx, root)
	}
	if renamed := c.now.SameFleet(); renamed != nil {
		if tags, err := p.Registry.Tags(ctx, oci.RepoFleet); len(tags) > 0 || err != nil && !errors.Is(err, oci.ErrNotFound) {
			return nil, errors.Join(renamed, err)
		}
		p.Say("%v: nothing is published at %s, so they begin again", renamed, c.To)
		return c.first(ctx, root)
	}
	current, err := p.Follow(ctx, c.now, false)
	if err != nil {
		return nil, err
	}
	if err := c.write(current.Chain); err != nil {
		return nil, err
	}
	out, next, err := nextKeys(c.now, current.Chain, c.Revoke, c.Reason, p.Now)
	if err != nil {
		return nil, err
	}
	if len(out.Changes) == 0 {
		out.Version-- // a run that was cut may have left fleet:current behind it
	}
	r, err := c.rotation(ctx, next, root)
	if err != nil {
		return nil, err
	}
	made, result, err := rotate.Keys(ctx, p, c.now, r)
	switch {
	case err != nil:
		return nil, ofRoots(err, out.Changes)
	case result != nil:
	case c.Revoke:
		p.Say("nothing to revoke: version %d already has the site's keys. If another key was stolen, put a new one in its "+
			"place in trust.keys first", out.Version)
		return nil, nil
	default:
		p.Say("version %d has the site's keys: nothing to do", out.Version)
		return nil, nil
	}
	out.Signed, out.DryRun = len(result.Resigned)+len(result.Published), p.Dry
	return &out, c.write(made)
}

// rotation opens the other keys that sign.
func (c *Change) rotation(ctx context.Context, next spec.Keys, root []crypto.Signer) (r rotate.Rotation, err error) {
	if c.Layers != "" && !oci.ValidDigest(c.Layers) {
		return r, cli.Usage("sha256: and 64 hex digits", "--layers: %q is not a digest", c.Layers)
	}
	r = rotate.Rotation{By: publish.By{Author: c.p.Author, Reason: c.Reason}, Next: next, Root: root, Layers: c.Layers, Lose: c.Lose}
	if r.Known, err = c.Known(ctx); err != nil {
		return r, err
	}
	for _, key := range []struct {
		source string
		into   *crypto.Signer
	}{{c.Release, &r.Release}, {c.Epoch, &r.Epoch}} {
		if key.source == "" {
			continue
		}
		if *key.into, err = keys.Signer(key.source, c.Passphrase); err != nil {
			return r, err
		}
	}
	return r, nil
}

// ofRoots adds to a refusal, where root keys change, that those of before sign, too: an operator who lost
// them comes this far.
func ofRoots(err error, changes []published.RoleChange) error {
	var refused *refusal.Refusal
	if !errors.As(err, &refused) || !slices.ContainsFunc(changes, func(c published.RoleChange) bool { return c.Role == "root" }) {
		return err
	}
	return cli.WithHint(err, "root keys change: enough of those before sign, too, and enough of the new ones, each with "+
		"--root-key; where those before are lost or stolen, see --begin-anew")
}

// first makes the version that boot files begin the chain with: version 1, or where another
// chain is given up, the one after its newest. Nodes that follow that one see a version that
// they cannot accept, and keep to what they run.
func (c *Change) first(ctx context.Context, root []crypto.Signer) (*KeysChange, error) {
	there, previous, err := c.p.NewestKeys(ctx)
	if err != nil {
		return nil, err
	}
	if there > 0 && !c.Anew {
		return nil, cli.Usage("take "+filepath.Base(c.site.Trust().Chain)+
			" from where the site was last published; where the root keys are lost or stolen, see --begin-anew",
			"%s has version %d of the keys, and there is no file of them beside the site", c.p.Registry.Ref(), there)
	}
	if c.now.Chain != nil && c.now.SameFleet() == nil { // what a thief has put behind it is not followed
		there, previous = max(there, c.now.Chain.Version()), c.now.Chain.Newest().Digest
	}
	left, err := c.leaves(ctx, root)
	if err != nil {
		return nil, err
	}
	doc := spec.Keys{APIVersion: spec.APIVersion, Kind: spec.KindKeys, Fleet: c.site.Name(), Version: there + 1,
		Previous: previous, Roles: c.now.Roles(), Reason: c.Reason, At: c.p.Now}
	candidate, err := rotate.SignKeys(doc, root)
	if err != nil {
		return nil, err
	}
	made, err := chain.First(candidate)
	if err != nil {
		return nil, err
	}
	out := &KeysChange{Fleet: doc.Fleet, Version: doc.Version, Revoked: []string{}, Left: left, DryRun: c.p.Dry}
	if out.Changes, err = published.CompareRoles(spec.Roles{}, doc.Roles); err != nil || c.p.Dry {
		return out, err
	}
	if err := c.setAside(); err != nil {
		return nil, err
	}
	if err := c.write(made); err != nil {
		return nil, err
	}
	c.p.Say("%s: 'caisson publish' and 'caisson refresh' publish it; nodes follow it once their boot files are written again",
		c.site.Trust().Chain)
	return out, nil
}

// leaves counts the nodes that follow the chain that is given up, and wants a word of the operator
// where there are any.
func (c *Change) leaves(ctx context.Context, root []crypto.Signer) (int, error) {
	if !c.Anew || c.now.Chain == nil {
		return 0, nil
	}
	n, err := followers(ctx, &c.p.Reader, c.now, root)
	if err != nil || n == 0 || c.Yes || c.p.Dry {
		return n, err
	}
	return 0, cli.Usage("--yes goes on; look with --dry-run",
		"begin anew: %s would be left behind: each would refuse what is published after this until it boots by boot files "+
			"that are written again", plain.Count(n, "node"))
}

// setAside keeps the file of a chain that is given up: it says who signed what nodes run.
func (c *Change) setAside() error {
	if c.now.Chain == nil {
		return nil
	}
	old := c.site.Trust().Chain + ".old"
	if err := durable.WriteFile(old, c.now.Chain.Marshal(), 0o644); err != nil {
		return fmt.Errorf("keep the keys of before: %w", err)
	}
	c.p.Say("%s has the chain that is given up", old)
	c.now.Chain = nil
	return nil
}

// write keeps the chain beside the site.
func (c *Change) write(newer *chain.Chain) error {
	if c.p.Dry || c.now.Chain != nil && newer.Version() == c.now.Chain.Version() {
		return nil
	}
	if err := durable.WriteFile(c.site.Trust().Chain, newer.Marshal(), 0o644); err != nil {
		return fmt.Errorf("keep the keys: %w", err)
	}
	c.now.Chain = newer
	return nil
}

// Plan returns what a change would do, and to whom.
func (c *Change) Plan(ctx context.Context, p *publish.Publisher) (*KeysPlan, error) {
	now, err := c.follow(ctx, p, "'caisson keys rotate' makes the first one")
	if err != nil {
		return nil, err
	}
	change, _, err := nextKeys(c.now, now.Chain, false, "", p.Now)
	if err != nil {
		return nil, err
	}
	return planKeys(ctx, &p.Reader, now, change)
}

// follow returns the policy with the keys that count now; hint is for a site that has no version of them.
func (c *Change) follow(ctx context.Context, p *publish.Publisher, hint string) (published.Policy, error) {
	if c.p = p; c.now.Chain == nil {
		return published.Policy{}, cli.Usage(hint, "the site has no version of the keys yet")
	}
	return p.Follow(ctx, c.now, false)
}

// Pull brings the file beside the site to the newest version.
func (c *Change) Pull(ctx context.Context, p *publish.Publisher) (*chain.Chain, error) {
	now, err := c.follow(ctx, p, "take caisson.keys from whoever made the first version: nothing else says whose it is")
	for errors.Is(err, chain.ErrLong) { // each is signed by root keys: it ends
		if err := c.write(now.Chain); err != nil {
			return nil, err
		}
		now, err = p.Follow(ctx, c.now, false)
	}
	if now.Chain != nil { // what could be had is kept, whatever came after it
		err = errors.Join(err, c.write(now.Chain))
	}
	if err == nil {
		p.Say("%s has version %d", c.site.Trust().Chain, now.Chain.Version())
	}
	return now.Chain, err
}
