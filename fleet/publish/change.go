// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/internal/nearest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/release"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

// overlay reads a published overlay and verifies that it is the one in the index,
// and signed as nodes demand it.
func (p *Publisher) overlay(ctx context.Context, v *view, name string) (*spec.Overlay, []byte, error) {
	l := &lookedOverlay{name: name, row: v.index.Nodes[name], index: v.index, policy: v.policy, now: p.Now}
	src := p.Registry.Source()
	resp, err := src.Manifest(ctx, oci.RepoNode, l.row.Manifest, "")
	if err != nil {
		return nil, nil, fmt.Errorf("node %s: %w", name, err)
	}
	l.candidate = trust.Candidate{Tag: name, Manifest: resp.Digest}
	if l.candidate.Document, l.candidate.Bundles, err = oci.ReadOverlay(ctx, src, oci.RepoNode, resp); err != nil {
		return nil, nil, fmt.Errorf("node %s: %w", name, err)
	}
	if err := p.allRules().overlay.Run(l); err != nil {
		return nil, nil, fmt.Errorf("node %s: %w", name, err)
	}
	return &l.overlay, l.candidate.Document, nil
}

// Pin gives nodes another layer and keeps the rest of their overlays. It is how
// one goes back: a newer generation that names an older layer.
func (p *Publisher) Pin(ctx context.Context, names []string, all bool, layer string) (result *Result, err error) {
	policy := p.trusted()
	err = p.alone(ctx, policy, purpose{}, func(ctx context.Context, run *Publisher, batch *registry.Batch, v *view) error {
		result, err = run.pin(ctx, v, batch, names, all, layer)
		return err
	})
	return result, err
}

func (p *Publisher) pin(ctx context.Context, v *view, batch *registry.Batch, names []string, all bool, layer string) (*Result, error) {
	if v.index == nil {
		return nil, p.unpublished()
	}
	if err := p.checkSigners(v.policy); err != nil {
		return nil, err
	}
	if all {
		names = sortedNames(v.index)
	}
	layers, err := p.Layers(ctx, v.policy, layer)
	if err != nil {
		return nil, err
	}
	x := v.next()
	x.Generation = max(x.Generation, v.seen.Reserved) + 1
	var todo []work
	for _, name := range names {
		if _, ok := v.index.Nodes[name]; !ok {
			return nil, hint(didYouMean(name, v.index)+"'caisson verify' lists the nodes", "node %q is not published", name)
		}
		o, _, err := p.overlay(ctx, v, name)
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
	result := newResult(x)
	result.Unchanged = len(v.index.Nodes) - len(todo)
	return result, p.write(ctx, v.policy, v, batch, x, todo, v.rejected(), result)
}

// Lists changes the reject list of fleet:current.
type Lists struct {
	Reject []string // digests of overlays or layers that nodes must not run
	Allow  []string // taken off the list
}

// Refresh renews the signature of fleet:current, and of overlays that are to
// expire. No content changes and no generation is taken. It runs daily.
func (p *Publisher) Refresh(ctx context.Context, lists Lists) (result *Result, err error) {
	policy := p.trusted()
	err = p.alone(ctx, policy, purpose{}, func(ctx context.Context, run *Publisher, batch *registry.Batch, v *view) error {
		result, err = run.refresh(ctx, v, batch, lists)
		return err
	})
	return result, err
}

func (p *Publisher) refresh(ctx context.Context, v *view, batch *registry.Batch, lists Lists) (*Result, error) {
	if v.index == nil {
		return nil, p.unpublished()
	}
	if err := p.checkSigners(v.policy); err != nil {
		return nil, err
	}
	reject, err := v.list(lists)
	if err != nil {
		return nil, err
	}
	x := v.next()
	result := newResult(x)
	var todo []work
	for _, name := range sortedNames(v.index) {
		was := v.index.Nodes[name]
		if !p.old(was.Expires, v.policy.Lifetime) {
			result.Unchanged++
			continue
		}
		o, doc, err := p.overlay(ctx, v, name)
		if err != nil {
			return nil, err
		}
		todo = append(todo, work{name: name, match: o.Match, layer: o.Layer, doc: doc, generation: was.Generation, resigned: true, pinned: was.Pinned})
	}
	v.current = &trust.FleetState{Reject: nil} // a rejected overlay is renewed like any other: the list decides on the node
	return result, p.write(ctx, v.policy, v, batch, x, todo, reject, result)
}

// next returns a copy of the index to change.
func (v *view) next() *spec.FleetIndex {
	x := *v.index
	x.Reserved = false
	x.Nodes = maps.Clone(v.index.Nodes)
	return &x
}

// rejected returns the present reject list.
func (v *view) rejected() []string {
	if v.current == nil {
		return nil
	}
	return v.current.Reject
}

// list returns the reject list with changes.
func (v *view) list(lists Lists) ([]string, error) {
	for _, digest := range slices.Concat(lists.Reject, lists.Allow) {
		if !oci.ValidDigest(digest) {
			return nil, hint("as in sha256:<64 hex digits>", "%.80q is not a digest", digest)
		}
	}
	list := slices.Concat(v.rejected(), lists.Reject)
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(d string) bool { return slices.Contains(lists.Allow, d) }), nil
}

func sortedNames(x *spec.FleetIndex) []string { return slices.Sorted(maps.Keys(x.Nodes)) }

// didYouMean asks for the published node whose name is near to another word.
func didYouMean(name string, x *spec.FleetIndex) string {
	if like := nearest.Word(name, maps.Keys(x.Nodes)); like != "" {
		return "did you mean " + like + "? "
	}
	return ""
}
