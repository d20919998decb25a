// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"slices"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// successions returns each layer that takes the place of another, read, and refuses those older than
// what the nodes have, unless an operator named them.
func (r *Run) successions(ctx context.Context, todo []Work, named bool) (all []*published.Succession, err error) {
	type pair struct{ old, new string }
	done := map[pair]bool{}
	for _, w := range todo {
		if w.Was == nil || w.Was.Layer == "" || w.Layer == "" || w.Was.Layer == w.Layer || done[pair{w.Was.Layer, w.Layer}] {
			continue
		}
		done[pair{w.Was.Layer, w.Layer}] = true
		s := &published.Succession{Node: w.Name}
		if s.New, err = r.Layer(ctx, w.Layer); err != nil {
			return nil, err
		}
		if s.Old, err = r.Layer(ctx, w.Was.Layer); published.Lost(err) {
			s.Lost, s.Old.Digest = err, w.Was.Layer
		} else if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	if named {
		return all, nil
	}
	for _, s := range all {
		if err := r.Publisher.CheckAge(s); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// checkLayers refuses what [Run.successions] does, and says what a layer for development costs that
// takes the place of another.
func (r *Run) checkLayers(ctx context.Context, todo []Work, named bool) error {
	all, err := r.successions(ctx, todo, named)
	if err != nil {
		return err
	}
	said := map[string]bool{}
	for _, s := range all {
		if digest := s.New.Digest; s.New.Fast && s.Lost == nil && !s.Old.Fast && !said[digest] {
			said[digest] = true
			r.Say("warning: layer %s was built with --fast, the one before was not: nodes fetch more than a build without it would cost them", digest)
		}
	}
	return nil
}

// Layer reads a layer that a verified row or overlay names, once.
func (r *Run) Layer(ctx context.Context, digest string) (release.Layer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l, ok := r.read[digest]; ok {
		return l, nil
	}
	l, err := release.Read(ctx, r.Publisher.Registry, digest)
	if err == nil {
		if r.read == nil {
			r.read = map[string]release.Layer{}
		}
		r.read[digest] = l
	}
	return l, err
}

// CheckReleased refuses a layer that was removed, or that nobody trusted released.
func (r *Run) CheckReleased(ctx context.Context, digest string) error {
	if digest == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err, known := r.released[digest]
	if !known {
		if _, err = r.Publisher.Layers(ctx, r.State.Policy, digest); r.released == nil {
			r.released = map[string]error{}
		}
		r.released[digest] = err
	}
	return err
}

// findLayers finds for each node on which layers, besides its own, what is live of its
// overlay may be applied: a node whose newest layer waits for a reboot need not wait with
// the rest. What a node really runs is not known here, so that is every layer which it was
// given since: the last one, and those that its last statement named. One that was
// rejected or pruned, or that lacks what the overlay needs, is left out; the oldest of
// more than [sign.MaxRunsOn] are, too. New signatures over the same content name the same.
func (r *Run) findLayers(ctx context.Context) error {
	c := r.Plan
	return ForEach(ctx, c.Todo, func(ctx context.Context, w *Work) error {
		if w.Was == nil || w.Was.Layer == "" || w.Layer == "" || w.runsOn != nil {
			return nil
		}
		last, err := r.Signed(ctx, w.Name)
		if err != nil && !published.Lost(err) {
			return err
		}
		if w.resigned && err == nil {
			w.runsOn = last.Accepted.RunsOn
			return nil
		}
		had := []string{w.Was.Layer}
		if err == nil {
			had = append(had, last.Accepted.RunsOn...)
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
			if digest == w.Layer || slices.Contains(c.reject, digest) || slices.Contains(w.runsOn, digest) || len(w.runsOn) == sign.MaxRunsOn {
				continue
			}
			l, err := r.Layer(ctx, digest)
			if err != nil && !published.Lost(err) {
				return err
			}
			if err == nil && l.Suits(&o) == nil {
				w.runsOn = append(w.runsOn, digest)
			}
		}
		return nil
	})
}
