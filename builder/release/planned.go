// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// Planned gives a plan, or a comparison of what was, the layers of a registry. It is of
// one plan, and for one goroutine at a time.
type Planned struct {
	Context context.Context
	Read    func(ctx context.Context, digest string) (Layer, error)
	Current []Layer // that publish would name, none where nothing is to come
	Say     func(format string, args ...any)
	Err     error // of the registry, not of a layer: what is gone or damaged is for the plan to say

	layers map[string]Layer
}

// Published returns a layer by its digest, nil when it is not there.
func (p *Planned) Published(digest string) *plan.Layer {
	l, err := p.Read(p.Context, digest)
	if err != nil {
		p.note(err)
		return nil
	}
	return p.Add(l)
}

// Next returns the layer that publish would name for a variant, nil where it has to be built.
func (p *Planned) Next(v site.Variant) *plan.Layer {
	l, err := ForVariant(p.Current, site.RecipeID(v.Recipe), v.Name)
	if err != nil {
		return nil
	}
	return p.Add(l)
}

// Add returns what a plan needs of a layer, nil where its recipe is gone or damaged.
func (p *Planned) Add(l Layer) *plan.Layer {
	if p.layers == nil {
		p.layers = map[string]Layer{}
	}
	p.layers[l.Digest] = l
	made, leftOut, err := l.Made(p.Context)
	if err != nil {
		p.note(err)
		return nil
	}
	if leftOut = slices.Concat(l.LeftOut, leftOut); len(leftOut) > 0 {
		p.Say("layer %s: %s", l.Digest, spec.LeftOut(leftOut))
	}
	return &plan.Layer{Layer: l.Layer, Digest: l.Digest, Made: *made}
}

// Fetch returns how many bytes a node fetches for a layer when it has another, or none; 0
// where that cannot be told.
func (p *Planned) Fetch(from, to *plan.Layer) int64 {
	if from == nil {
		return p.layers[to.Digest].Bytes()
	}
	_, n, err := fetched(p.Context, p.layers[from.Digest], p.layers[to.Digest])
	p.note(err)
	return n
}

// note keeps an error that asking again could mend.
func (p *Planned) note(err error) {
	if err != nil && !errors.Is(err, oci.ErrNotFound) && refusal.Of(err) == "" {
		p.Err = errors.Join(p.Err, fmt.Errorf("read layer: %w", err))
	}
}

// Before holds the state that a build goes on from.
type Before struct {
	Ledger []spec.Account // whose each number is, see [Set.Accounts]
	Layers []Layer        // those that were current
}

// accounts returns who was in the layer that a variant takes the place of. A recipe that
// was built before has its own layer. Else that is the one of the variant's name. A
// variant with another recipe than any before has another name, too: its nodes had the
// default layer, or one that no node has from now on.
func (b Before) accounts(v site.Variant, all []site.Variant) (rows []spec.Account) {
	id := func(l Layer) string { return digest.Hex(l.Recipe) }
	for _, same := range []func(Layer) bool{
		func(l Layer) bool { return id(l) == site.RecipeID(v.Recipe) },
		func(l Layer) bool { return l.Variant == v.Name },
	} {
		if i := slices.IndexFunc(b.Layers, same); i >= 0 {
			return b.Layers[i].Accounts
		}
	}
	for _, l := range b.Layers {
		if l.Variant == site.DefaultVariant || !slices.ContainsFunc(all, func(v site.Variant) bool { return id(l) == site.RecipeID(v.Recipe) }) {
			rows = append(rows, l.Accounts...)
		}
	}
	return rows
}
