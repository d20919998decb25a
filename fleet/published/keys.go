// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Roles are the keys of a policy as a version of fleet:keys has them.
func (p *Policy) Roles() spec.Roles {
	return spec.Roles{
		Root: role(p.Root, p.RootThreshold), Operator: role(p.Operator, p.Threshold),
		Release: role(p.Release, 1), Attestation: role(p.Attestation, 1), Epoch: role(p.Epoch, 1), Rescue: role(p.Rescue, 1),
	}
}

func role(keys []sign.Verifier, threshold int) spec.Role {
	if len(keys) == 0 {
		return spec.Role{}
	}
	return spec.Role{Keys: sign.PEMs(keys), Threshold: threshold}
}

// RoleChange lists the keys of one role that come and go, and its threshold.
type RoleChange struct {
	Role      string   `json:"role"`
	Added     []string `json:"added,omitempty"`   // ids
	Removed   []string `json:"removed,omitempty"` // ids
	Threshold [2]int   `json:"threshold"`         // before and after
}

// String is one line for people.
func (c RoleChange) String() string {
	words := plain.Each(c.Added, func(id string) string { return "+" + id })
	for _, id := range c.Removed {
		words = append(words, "-"+id)
	}
	if c.Threshold[0] != c.Threshold[1] {
		words = append(words, fmt.Sprintf("threshold %d → %d", c.Threshold[0], c.Threshold[1]))
	}
	return c.Role + ": " + strings.Join(words, ", ")
}

// CompareRoles lists the roles in which two versions differ, in the order of the document.
func CompareRoles(from, to spec.Roles) (out []RoleChange, err error) {
	before := from.All()
	for i, after := range to.All() {
		was, err := sign.IDs(before[i].Role.Keys)
		if err != nil {
			return nil, err
		}
		is, err := sign.IDs(after.Role.Keys)
		if err != nil {
			return nil, err
		}
		c := RoleChange{Role: after.Name, Added: plain.Without(is, was), Removed: plain.Without(was, is),
			Threshold: [2]int{before[i].Role.Threshold, after.Role.Threshold}}
		if len(c.Added)+len(c.Removed) > 0 || c.Threshold[0] != c.Threshold[1] {
			out = append(out, c)
		}
	}
	return out, nil
}

// With returns the policy with the keys of a chain's newest version.
func (p Policy) With(c *chain.Chain) (Policy, error) {
	p.Chain = c
	return p.of(c.Newest())
}

// of returns the policy with the keys of a version.
func (p Policy) of(version chain.Link) (_ Policy, err error) {
	k := version.Keys.Roles
	for _, r := range []struct {
		keys *[]sign.Verifier
		from spec.Role
	}{{&p.Operator, k.Operator}, {&p.Release, k.Release}, {&p.Epoch, k.Epoch}, {&p.Root, k.Root},
		{&p.Attestation, k.Attestation}, {&p.Rescue, k.Rescue}} {
		if *r.keys, err = sign.ParsePublics(r.from.Keys); err != nil {
			return p, err
		}
	}
	p.Threshold, p.RootThreshold = k.Operator.Threshold, k.Root.Threshold
	return p, nil
}

// SameFleet refuses versions of the keys that are of another fleet: the site was renamed, or
// they are another site's.
func (p Policy) SameFleet() error {
	if p.Chain == nil || p.Fleet == "" {
		return nil
	}
	if of := p.Chain.Newest().Keys.Fleet; of != p.Fleet {
		return cli.Hint("write metadata.name as it was, or take caisson.keys of this site; where nothing is published, 'caisson "+
			"keys rotate' begins again",
			"the versions of the keys are of fleet %q, the site is %q", of, p.Fleet)
	}
	return nil
}

// Follow returns the policy with the keys that count now: those of the newest version that
// the site or the registry has. Without root keys it is the policy as it was. For a publish
// the site must name the same keys: else it would be signed by keys that nodes do not obey. Where
// a version cannot be had, the policy has the newest before it beside the error, for who keeps
// versions and nothing else.
func (r *Reader) Follow(ctx context.Context, policy Policy, publishes bool) (Policy, error) {
	if policy.Chain == nil {
		if publishes && len(policy.Root) > 0 {
			return policy, cli.Hint("'caisson keys rotate' makes the first version; where there is one, take caisson.keys from "+
				"version control or from who publishes", "the site names root keys, and has no version of the keys yet")
		}
		return policy, nil
	}
	if err := policy.SameFleet(); err != nil {
		return policy, err
	}
	c := policy.Chain.Fork()
	if err := c.Walk(ctx, r.Registry.Source(), func(chain.Link) error { return nil }); err != nil {
		reached, bad := policy.With(c)
		switch {
		case errors.Is(err, chain.ErrLong):
			err = cli.WithHint(err, "'caisson keys pull' brings them all")
		case refusal.Of(err) != "":
			err = cli.Hint("where another chain was begun, take trust.keys and caisson.keys from where the site was last published",
				"version %d of the keys: %w", c.Version()+1, err)
		}
		return reached, errors.Join(err, bad)
	}
	if mine := policy.Chain.Version(); c.Version() > mine {
		r.Say("%s has version %d of the keys, the file beside the site has %d: 'caisson keys pull' brings it",
			r.Registry.Ref(), c.Version(), mine)
	}
	if publishes && !policy.Beside {
		changes, err := CompareRoles(c.Newest().Keys.Roles, policy.Roles())
		if err != nil {
			return policy, err
		}
		if len(changes) > 0 {
			return policy, cli.WithHint(fmt.Errorf("the site names other keys than version %d: %s", c.Version(), changes[0]),
				"'caisson keys rotate' makes them count; if the site is older than the version, mend trust.keys")
		}
	}
	return policy.With(c)
}

// Newest is [Reader.Follow] for those who write what nodes begin with or build on: the
// published fleet is verified, whose fleet:current names the newest version, so one that the
// registry withholds is missed. A policy without versions is refused where the registry has
// some: nodes that begin with its keys would obey no version.
func (r *Reader) Newest(ctx context.Context, policy Policy) (Policy, error) {
	if policy.Chain == nil {
		_, err := r.Registry.Source().Manifest(ctx, oci.RepoFleet, trust.KeysTag(1), "")
		switch {
		case errors.Is(err, oci.ErrNotFound):
			return policy, nil
		case err != nil:
			return policy, err
		}
		return policy, cli.WithHint(refusal.New(refusal.KeysBehind, "%s has versions of the keys, and the site has none", r.Registry.Ref()),
			"take trust.keys.root and caisson.keys from where the site was last published")
	}
	q := *r
	q.AcceptExpired = true
	v, err := q.look(ctx, policy, Purpose{Half: true})
	if err != nil {
		return policy, err
	}
	return v.Policy, nil
}

// currentKeysAreThere: a registry that withholds a version keeps this publisher obeying keys that
// are revoked.
func currentKeysAreThere(l *looked) error {
	if l.policy.Chain == nil && l.fresh.Keys > 0 && len(l.r.Signers) > 0 && !l.r.Dry { // what comes of it is signed
		return cli.WithHint(refusal.New(refusal.KeysBehind,
			"the fleet's keys are at version %d: whoever does not follow them would sign what nodes refuse", l.fresh.Keys),
			"give --site, with caisson.keys beside it; beside objects of a cluster, keys/root.pub and caisson.keys")
	}
	if l.policy.Chain == nil {
		return nil
	}
	return l.policy.Chain.Behind(l.fresh.Keys)
}

// NewestKeys returns the newest version of the keys that has a tag in the registry and the
// digest of its document, by any signer; 0 where there is none.
func (r *Reader) NewestKeys(ctx context.Context) (newest uint64, digest string, err error) {
	tags, err := r.Registry.Tags(ctx, oci.RepoFleet)
	if err != nil && !errors.Is(err, oci.ErrNotFound) {
		return 0, "", err
	}
	for _, tag := range tags {
		newest = max(newest, versionOf(tag))
	}
	if newest == 0 {
		return 0, "", nil
	}
	digest, err = trust.Keys(ctx, r.Registry.Source(), newest, func(c trust.Candidate) (string, error) { return oci.Digest(c.Document), nil })
	return newest, digest, err
}

// versionOf returns the version of the keys that a tag of the fleet's repository names, 0 where
// it names something else.
func versionOf(tag string) uint64 {
	digits, _ := strings.CutPrefix(tag, strings.TrimSuffix(trust.KeysTag(0), "0"))
	if v, err := strconv.ParseUint(digits, 10, 64); err == nil && trust.KeysTag(v) == tag {
		return v
	}
	return 0
}

// IsKeys reports whether a tag of the fleet's repository is that of a version of the keys.
func IsKeys(tag string) bool { return versionOf(tag) > 0 }

// WithoutFeature lists the nodes whose layer's agent lacks a feature, in the order of their
// names. A layer that cannot be read counts as one that lacks it.
func (f *Fleet) WithoutFeature(ctx context.Context, feature string) ([]string, error) {
	out := []string{}
	rows, err := f.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	knows := map[string]bool{"": true} // a host that caisson did not boot has an agent of its own
	for _, row := range rows {
		if _, asked := knows[row.Layer]; asked {
			continue
		}
		l, err := release.Read(ctx, f.r.Registry, row.Layer)
		if err != nil && !Lost(err) {
			return nil, err
		}
		knows[row.Layer] = err == nil && slices.Contains(l.Features, feature)
	}
	for _, name := range plain.Names(maps.Keys(rows)) {
		if !knows[rows[name].Layer] {
			out = append(out, name)
		}
	}
	return out, nil
}
