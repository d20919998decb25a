// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/release"
	"github.com/caisson-os/caisson/spec"
)

// published reads the index with the signers' own keys and takes the policy from
// it: pin and refresh have no site at hand.
func (p *Publisher) published(ctx context.Context) (*spec.FleetIndex, Policy, error) {
	var keys []*ecdsa.PublicKey
	for _, s := range p.Signers {
		if pub, ok := s.Public().(*ecdsa.PublicKey); ok {
			keys = append(keys, pub)
		}
	}
	x, err := p.readIndex(ctx, keys)
	if err != nil {
		return nil, Policy{}, err
	}
	policy, err := policyOf(x)
	if err != nil {
		return nil, Policy{}, err
	}
	return x, policy, p.checkSigners(policy)
}

func policyOf(x *spec.FleetIndex) (Policy, error) {
	operator, err := sign.ParsePublics(x.Operator)
	if err != nil {
		return Policy{}, err
	}
	release, err := sign.ParsePublics(x.Release)
	if err != nil {
		return Policy{}, err
	}
	return Policy{Fleet: x.Fleet, Operator: operator, Release: release, Threshold: x.Threshold, Lifetime: time.Duration(x.Lifetime) * time.Second}, nil
}

// overlay reads a published overlay and verifies that it is the one in the index,
// which is signed.
func (p *Publisher) overlay(ctx context.Context, name string, was spec.Published) (*spec.Overlay, []byte, error) {
	src := p.Registry.Source()
	resp, err := src.Manifest(ctx, oci.RepoNode, was.Manifest, "")
	if err != nil {
		return nil, nil, fmt.Errorf("node %s: %w", name, err)
	}
	doc, _, err := oci.ReadOverlay(ctx, src, oci.RepoNode, resp)
	if err != nil {
		return nil, nil, fmt.Errorf("node %s: %w", name, err)
	}
	var o spec.Overlay
	if err := spec.Decode(doc, &o); err != nil {
		return nil, nil, fmt.Errorf("node %s: %w", name, err)
	}
	return &o, doc, nil
}

// Pin gives nodes another layer and keeps the rest of their overlays. It is how
// one goes back: a newer generation that names an older layer.
func (p *Publisher) Pin(ctx context.Context, names []string, all bool, layer string) (*Result, error) {
	old, policy, err := p.published(ctx)
	if err != nil {
		return nil, err
	}
	if all {
		names = sortedNames(old)
	}
	layers, err := release.Resolve(ctx, p.Registry, layer, policy.Release)
	if err != nil {
		return nil, err
	}
	x := *old
	x.Generation++
	x.Nodes = cloneNodes(old)
	var todo []work
	for _, name := range names {
		was, ok := old.Nodes[name]
		if !ok {
			return nil, hint("caisson verify lists them", "node %q is not published", name)
		}
		o, _, err := p.overlay(ctx, name, was)
		if err != nil {
			return nil, err
		}
		l, err := release.ForVariant(layers, o.Variant)
		if err != nil {
			return nil, err
		}
		o.Layer, o.Variant = l.Digest, l.Variant
		doc, err := spec.Encode(o)
		if err != nil {
			return nil, err
		}
		todo = append(todo, work{name: name, match: o.Match, layer: o.Layer, knows: l.Features, doc: doc, generation: x.Generation, pinned: true})
	}
	result := newResult(&x)
	result.Unchanged = len(old.Nodes) - len(todo)
	return result, p.write(ctx, policy, old, &x, todo, result)
}

// Lists changes the reject list of fleet:current.
type Lists struct {
	Reject []string // digests of overlays or layers that nodes must not run
	Allow  []string // taken off the list
}

// Refresh signs fleet:current anew, and overlays whose signature grows old. No
// content changes and no generation is taken. It runs daily.
func (p *Publisher) Refresh(ctx context.Context, lists Lists) (*Result, error) {
	old, policy, err := p.published(ctx)
	if err != nil {
		return nil, err
	}
	x := *old
	x.Nodes = cloneNodes(old)
	result := newResult(&x)
	var todo []work
	for _, name := range sortedNames(old) {
		was := old.Nodes[name]
		if !p.old(was.Expires, policy.Lifetime) {
			result.Unchanged++
			continue
		}
		o, doc, err := p.overlay(ctx, name, was)
		if err != nil {
			return nil, err
		}
		todo = append(todo, work{name: name, match: o.Match, layer: o.Layer, doc: doc, generation: was.Generation, resigned: true, pinned: was.Pinned})
	}
	reject, err := p.rejectList(ctx, policy, x.Epoch, lists)
	if err != nil {
		return nil, err
	}
	if err := p.signNodes(ctx, policy, &x, todo); err != nil {
		return nil, err
	}
	flush, err := p.Registry.Batch()
	if err != nil {
		return nil, err
	}
	err = p.pushNodes(ctx, &x, todo, result)
	if err == nil {
		err = p.putFleet(ctx, &x, "index", oci.TypeFleetIndex, sign.PredicateIndex, policy.Lifetime)
	}
	if err == nil {
		err = p.putCurrent(ctx, policy, &x, reject)
	}
	return result, errors.Join(err, flush())
}

func (p *Publisher) rejectList(ctx context.Context, policy Policy, epoch uint64, lists Lists) ([]string, error) {
	now, err := p.current(ctx, policy, epoch)
	if err != nil {
		return nil, fmt.Errorf("fleet:current: %w", err)
	}
	for _, digest := range slices.Concat(lists.Reject, lists.Allow) {
		if !oci.ValidDigest(digest) {
			return nil, hint("as in sha256:<64 hex digits>", "%.80q is no digest", digest)
		}
	}
	list := slices.Concat(now.Reject, lists.Reject)
	slices.Sort(list)
	list = slices.Compact(list)
	list = slices.DeleteFunc(list, func(d string) bool { return slices.Contains(lists.Allow, d) })
	if list == nil {
		list = []string{}
	}
	return list, nil
}

func newResult(x *spec.FleetIndex) *Result {
	return &Result{Fleet: x.Fleet, Epoch: x.Epoch, Generation: x.Generation, Published: []NodeLine{}, Resigned: []NodeLine{}}
}
