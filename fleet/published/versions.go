// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"slices"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Versions returns the policy with the keys of each version that it follows, the newest
// first, none of which follows others by itself. Without a chain it is the policy.
func (p Policy) Versions() (all []Policy, err error) {
	if p.Chain == nil {
		return []Policy{p}, nil
	}
	for _, l := range slices.Backward(p.Chain.Links()) {
		of, err := p.of(l)
		if err != nil {
			return nil, err
		}
		of.Chain = nil
		all = append(all, of)
	}
	return all, nil
}

// Without returns the policy without some operators, and whether enough are left.
func (p Policy) Without(ids []string) (Policy, bool) {
	p.Operator = slices.DeleteFunc(slices.Clone(p.Operator), func(k sign.Verifier) bool { return slices.Contains(ids, k.ID()) })
	return p, len(p.Operator) >= p.Threshold
}

// Released returns the release keys of all versions, without those that were revoked: a copy
// is as old as it is.
func (p Policy) Released() (keys []sign.Verifier, err error) {
	versions, err := p.Versions()
	if err != nil {
		return nil, err
	}
	revoked := p.Revoked()
	for _, of := range versions {
		for _, k := range of.Release {
			if !slices.Contains(revoked, k.ID()) && !slices.ContainsFunc(keys, func(o sign.Verifier) bool { return o.ID() == k.ID() }) {
				keys = append(keys, k)
			}
		}
	}
	return keys, nil
}

// Revoked returns the ids of keys that are never accepted again.
func (p Policy) Revoked() []string {
	if p.Chain == nil {
		return nil
	}
	return p.Chain.Newest().Keys.Revoked
}

// Reached returns the epoch and the generation that were given out last at a place to which
// another one is copied, zero where nothing is published, and the policy with the newest
// version of the keys there. Only fleet:index is looked at. The operators of any version may
// have signed it, since a copy is as old as it is: what is held against it is only how far it
// is. What keys signed that were revoked since, and no others, is not a floor: who stole them
// could else keep every copy out, and what the fleet itself signed then is older than what
// counts now.
func (r *Reader) Reached(ctx context.Context, policy Policy) (spec.Floor, Policy, error) {
	q := *r
	q.AcceptExpired = true
	now, err := r.Follow(ctx, policy, false)
	if err != nil {
		return spec.Floor{}, now, err
	}
	versions, err := now.Versions()
	if err != nil {
		return spec.Floor{}, now, err
	}
	revoked := now.Revoked()
	floor := func(versions []Policy) (spec.Floor, error) {
		var first error
		for _, by := range versions {
			v, err := q.look(ctx, by, Purpose{index: true})
			if err == nil {
				return (&Fleet{&q, v}).Floor(), nil
			}
			if !refusal.OfKeys(err) {
				return spec.Floor{}, err
			}
			if first == nil {
				first = err
			}
		}
		return spec.Floor{}, first
	}
	var count []Policy
	for _, by := range versions {
		if by, enough := by.Without(revoked); enough {
			count = append(count, by)
		}
	}
	f, err := floor(count)
	if refusal.OfKeys(err) && len(revoked) > 0 {
		if old, err := floor(versions); err == nil {
			r.Say("%s: generation %d is signed by keys that were revoked, and by no others: it is replaced", r.Registry.Ref(), old.Generation)
			return spec.Floor{}, now, nil
		}
	}
	return f, now, err
}

// MayRelease refuses to sign layers by a key that no node takes any more: the site that is built
// may be older than the version that revokes it.
func (p Policy) MayRelease(by sign.Verifier) error {
	if !slices.Contains(p.Revoked(), by.ID()) {
		return nil
	}
	return cli.WithHint(refusal.New(refusal.UnknownKey, "version %d of the keys revokes the release key %s", p.Chain.Version(), by.ID()),
		"take the site as it was last published; 'caisson keys pull' brings the versions of the keys")
}
