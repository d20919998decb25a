// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// own returns what is published where all of it is this publisher's, or was there before it came, and
// nil where somebody else has given out some of it since.
func (f *base) own() *published.Own {
	if f.v.Index == nil {
		return &published.Own{}
	}
	seen, known := f.p.Memory.At(f.p.Registry.Ref().String())
	if known && !f.v.isOwn(seen.Mine(), idsOf(f.p.Signers)) {
		return nil
	}
	return &published.Own{Epoch: f.v.Index.Root.Epoch, Generation: f.v.Index.Root.Generation, Digest: f.v.Digest}
}

// restsOn finds out what a run rests on, and returns what is remembered of that.
func (r *run) restsOn() published.Own {
	seen, _ := r.p.Memory.At(r.p.Registry.Ref().String())
	if r.own == nil {
		r.own = r.base.own()
	}
	return seen.Mine()
}

// isOwn reports whether what is published is what is remembered, or that as another publisher has
// signed it again: by none of some keys, as a thief of one of them would.
func (v *view) isOwn(own published.Own, stolen map[string]bool) bool {
	root := v.Index.Root
	byThief := slices.ContainsFunc(v.By, func(id string) bool { return stolen[id] })
	return own.Has(v.Digest) || own.Digest != "" && own.Epoch == root.Epoch && own.Generation == root.Generation && !byThief
}

// markForeign marks what this publisher has not given out, where an operator's key is revoked:
// a thief may have. What nodes have is signed again all the same, else those that run it could not
// boot; but no node goes back to it. What the rows of such an index say that
// nodes had before is its maker's word, too: what this publisher gave out last takes its place.
func (r *rotating) markForeign(ctx context.Context, x *index.Index) error {
	kept, _ := r.now.Without(r.next.Revoked())
	if len(kept.Operator) == len(r.now.Operator) {
		return nil
	}
	seen, known := r.p.Memory.At(r.p.Registry.Ref().String())
	if !known {
		r.Say("nothing is remembered of %s: whether somebody else gave out generations with the revoked key is not known", r.p.Registry.Ref())
		return nil
	}
	own := seen.Mine()
	span := spec.Span{Epoch: x.Root.Epoch, From: 1, To: x.Root.Generation}
	if own.Epoch == x.Root.Epoch {
		span.From = min(own.Generation+1, span.To)
	}
	revoked := map[string]bool{}
	for _, id := range r.next.Revoked() {
		revoked[id] = true
	}
	if r.v.isOwn(own, revoked) {
		if len(r.v.By) > 0 && !slices.ContainsFunc(r.v.By, func(id string) bool { return !revoked[id] }) {
			r.Say("generation %s was published from here with revoked keys alone, and is signed again as it is: 'caisson plan' "+
				"says what differs from the site",
				published.Generation{Epoch: span.Epoch, Number: span.To})
		}
		return nil
	}
	first, last := published.Generation{Epoch: span.Epoch, Number: span.From}, published.Generation{Epoch: span.Epoch, Number: span.To}
	r.Say("generations %s to %s were not published from here (%s), and the last is signed again as it is, forged or not: "+
		"'caisson plan' says what differs from the site; publish after this, then 'caisson refresh --reject GENERATION' for each",
		first, last, r.p.Memory.Name())
	if !r.Foreign(last) {
		x.Root.Foreign = append(slices.Clone(x.Root.Foreign), span)
	}
	rows, err := x.All(ctx)
	if err != nil {
		return err
	}
	given := index.Rows{}
	if l := r.remembered(ctx); l == nil {
		r.Say("what nodes had before that is not known: 'caisson rollback' does not go back behind it")
	} else if given, err = l.Nodes(ctx); err != nil {
		return err
	}
	for name, row := range rows {
		own, there := given[name]
		switch row.Foreign = true; {
		case !there:
			row.Before = nil
		case own.Overlay == row.Overlay:
			row.Foreign, row.Before = own.Foreign, own.Before
		case own.Foreign:
			row.Before = own.Before
		default:
			row.Before = rowContent(own)
		}
		x.Set(name, row)
	}
	r.own = &published.Own{Epoch: x.Root.Epoch, Generation: x.Root.Generation, Digest: r.v.Digest} // all others are marked above
	return nil
}

// remembered returns the root of the newest generation that is this publisher's alone, nil where that
// cannot be had: only its digest proves it.
func (r *rotating) remembered(ctx context.Context) *published.Past {
	seen, _ := r.p.Memory.At(r.p.Registry.Ref().String())
	own := seen.Mine()
	for _, g := range []published.Generation{published.GenerationOf(r.v.Index.Root), {Epoch: own.Epoch, Number: own.Generation}} {
		for _, by := range []published.Policy{r.now, r.next} { // a run that was cut may have signed it again
			l, err := r.p.Past(ctx, by, g)
			if err == nil && own.Has(oci.Digest(l.Candidate.Document)) {
				return l
			}
		}
	}
	return nil
}

// passOver has nodes that get something else go back, later, to what they had before what a
// foreign generation gave them, and not to what they get now.
func (r *run) passOver(ctx context.Context) error {
	c := r.plan
	if !slices.ContainsFunc(c.todo, func(w work) bool { return w.was != nil && w.was.Foreign }) {
		return nil
	}
	own, err := r.ownBefore(ctx, published.GenerationOf(r.v.Index.Root))
	if err != nil {
		return err
	}
	for _, w := range c.todo {
		if w.was == nil || !w.was.Foreign || w.was.Before == nil || w.was.Before.Overlay != w.overlay {
			continue
		}
		var row spec.Published // without a generation of our own nothing is known to go back to
		if own != nil {
			if row, _, err = own.Row(ctx, w.name); err != nil {
				return err
			}
		}
		w.was.Before = row.Before
	}
	return nil
}

// ownBefore returns the newest generation before another that is proven and not foreign, nil
// where none is. One that cannot be read now is an error: an older one is not in its place.
func (f *base) ownBefore(ctx context.Context, g published.Generation) (*published.Past, error) {
	list, err := f.Generations(ctx)
	if err != nil {
		return nil, err
	}
	for _, older := range list {
		if older.Compare(g) >= 0 || f.Foreign(older) {
			continue
		}
		past, err := f.Past(ctx, older)
		if err == nil || refusal.Of(err) == "" && !errors.Is(err, published.ErrNotKept) {
			return past, err
		}
	}
	return nil, nil
}

func rowContent(row spec.Published) *spec.Content {
	return &spec.Content{Overlay: row.Overlay, Size: row.Size, Layer: row.Layer, Generation: row.Generation}
}

// given returns the digests of the overlays that a generation gave to nodes, by any signature.
// What nodes have, or had before, by another generation is not among them, nor what they had
// in the one before: else who has a revoked key could have good content rejected.
func (f *base) given(ctx context.Context, g published.Generation, rows index.Rows) ([]string, error) {
	past, _, _, err := f.PastOf(ctx, g)
	if err != nil {
		return nil, err
	}
	nodes, err := past.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	others := map[string]bool{}
	note := func(c *spec.Content) {
		if c != nil && (c.Generation != g.Number || g.Epoch != f.v.Index.Root.Epoch) {
			others[c.Overlay] = true
		}
	}
	for _, row := range rows {
		note(rowContent(row))
		note(row.Before)
	}
	before, err := f.ownBefore(ctx, g)
	if err != nil {
		return nil, err
	}
	if before != nil {
		had, err := before.Nodes(ctx)
		if err != nil {
			return nil, err
		}
		for _, row := range had {
			others[row.Overlay] = true
		}
	}
	found := map[string]bool{}
	for _, row := range nodes {
		if row.Generation == g.Number && !others[row.Overlay] {
			found[row.Overlay] = true
		}
	}
	f.Say("generation %s gave nodes %s that no other gave", g, plain.Count(len(found), "overlay"))
	if len(found) == 0 {
		return nil, cli.Hint("'caisson history --node NODE -o json' has the digests that a node had",
			"generation %s gave nodes nothing that no other gave: there is nothing to reject", g)
	}
	return slices.Sorted(maps.Keys(found)), nil
}
