// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"slices"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// findLayers finds for each node on which layers, besides its own, what is live of its
// overlay may be applied: a node whose newest layer waits for a reboot need not wait with
// the rest. What a node really runs is not known here, so that is every layer which it was
// given since: the last one, and those that its last statement named. One that was
// rejected or pruned, or that lacks what the overlay needs, is left out; the oldest of
// more than [sign.MaxRunsOn] are, too. New signatures over the same content name the same.
func (r *run) findLayers(ctx context.Context) error {
	c, e := r.c, &editing{run: r, layers: map[string]release.Layer{}}
	return forEach(ctx, c.todo, func(ctx context.Context, w *work) error {
		if w.was == nil || w.was.Layer == "" || w.layer == "" || w.runsOn != nil {
			return nil
		}
		last, err := r.overlay(ctx, w.name)
		if err != nil && !lost(err) {
			return err
		}
		if w.resigned && err == nil {
			w.runsOn = last.accepted.RunsOn
			return nil
		}
		had := []string{w.was.Layer}
		if err == nil {
			had = append(had, last.accepted.RunsOn...)
		}
		var o spec.Overlay
		doc, err := w.document()
		if err != nil {
			return err
		}
		if err := spec.Decode(doc, &o); err != nil {
			return err
		}
		for _, digest := range had {
			if digest == w.layer || slices.Contains(c.reject, digest) || slices.Contains(w.runsOn, digest) || len(w.runsOn) == sign.MaxRunsOn {
				continue
			}
			l, err := e.layer(ctx, digest)
			if err != nil && !lost(err) {
				return err
			}
			if err == nil && l.Suits(&o) == nil {
				w.runsOn = append(w.runsOn, digest)
			}
		}
		return nil
	})
}

// lost reports whether something is gone or damaged, and not only out of reach.
func lost(err error) bool { return errors.Is(err, oci.ErrNotFound) || refusal.Of(err) != "" }
