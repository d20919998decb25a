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
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// restsOn finds out what a run rests on, and returns what is remembered of that. It rests on what is
// published where all of that is this publisher's or was there before it came, else on nothing.
func (r *Run) restsOn() published.Own {
	seen, known := r.Publisher.Memory.At(r.Publisher.Registry.Ref().String())
	switch x := r.State.Index; {
	case r.Own != nil:
	case x == nil:
		r.Own = &published.Own{}
	case !known || r.IsOwn(seen.Mine(), sign.SignerIDs(r.Publisher.Signers)):
		r.Own = &published.Own{Epoch: x.Root.Epoch, Generation: x.Root.Generation, Digest: r.State.Digest}
	}
	return seen.Mine()
}

// IsOwn reports whether what is published is what is remembered, or that as another publisher has
// signed it again: by none of some keys, as a thief of one of them would.
func (r *Run) IsOwn(own published.Own, stolen map[string]bool) bool {
	root := r.State.Index.Root
	byThief := slices.ContainsFunc(r.State.By, func(id string) bool { return stolen[id] })
	return own.Has(r.State.Digest) || own.Digest != "" && own.Epoch == root.Epoch && own.Generation == root.Generation && !byThief
}

// passOver has nodes that get something else go back, later, to what they had before what a
// foreign generation gave them, and not to what they get now.
func (r *Run) passOver(ctx context.Context) error {
	c := r.Plan
	if !slices.ContainsFunc(c.Todo, func(w Work) bool { return w.Was != nil && w.Was.Foreign }) {
		return nil
	}
	own, err := r.ownBefore(ctx, published.GenerationOf(r.State.Index.Root))
	if err != nil {
		return err
	}
	for _, w := range c.Todo {
		if w.Was == nil || !w.Was.Foreign || w.Was.Before == nil || w.Was.Before.Overlay != w.Overlay {
			continue
		}
		var row spec.Published // without a generation of our own nothing is known to go back to
		if own != nil {
			if row, _, err = own.Row(ctx, w.Name); err != nil {
				return err
			}
		}
		w.Was.Before = row.Before
	}
	return nil
}

// ownBefore returns the newest generation before another that is proven and not foreign, nil
// where none is. One that cannot be read now is an error: an older one is not in its place.
func (r *Run) ownBefore(ctx context.Context, g published.Generation) (*published.Past, error) {
	list, err := r.Generations(ctx)
	if err != nil {
		return nil, err
	}
	for _, older := range list {
		if older.Compare(g) >= 0 || r.Foreign(older) {
			continue
		}
		past, err := r.Past(ctx, older)
		if err == nil || refusal.Of(err) == "" && !errors.Is(err, published.ErrNotKept) {
			return past, err
		}
	}
	return nil, nil
}

// given returns the digests of the overlays that a generation gave to nodes, by any signature.
// What nodes have, or had before, by another generation is not among them, nor what they had
// in the one before: else who has a revoked key could have good content rejected.
func (r *Run) given(ctx context.Context, g published.Generation, rows index.Rows) ([]string, error) {
	past, _, _, err := r.PastOf(ctx, g)
	if err != nil {
		return nil, err
	}
	nodes, err := past.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	others := map[string]bool{}
	note := func(c *spec.Content) {
		if c != nil && (c.Generation != g.Number || g.Epoch != r.State.Index.Root.Epoch) {
			others[c.Overlay] = true
		}
	}
	for _, row := range rows {
		note(row.Content())
		note(row.Before)
	}
	before, err := r.ownBefore(ctx, g)
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
	r.Say("generation %s gave nodes %s that no other gave", g, plain.Count(len(found), "overlay"))
	if len(found) == 0 {
		return nil, cli.Hint("'caisson history --node NODE -o json' has the digests that a node had",
			"generation %s gave nodes nothing that no other gave: there is nothing to reject", g)
	}
	return slices.Sorted(maps.Keys(found)), nil
}
