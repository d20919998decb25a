// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// lookedLayers holds the layers that a reference leads to, on their way through the checks.
type lookedLayers struct {
	ctx       context.Context
	reference string
	set       *release.Set
	policy    Policy
	seen      Stamp
	by        release.Statement // who made it current, and when
	now       time.Time
}

// layerChecks is the rule for layers that overlays are to name, whose ledger a
// build goes on with, and that loaders come out of.
var layerChecks = check.List[*lookedLayers]{
	{Name: "layers released", OK: layersAreReleased},
	{Name: "layers fleet", OK: layersAreOurs},
	{Name: "layers version", OK: versionIsNamed},
	{Name: "layers statement", OK: currentIsStated},
	{Name: "layers clock", OK: func(l *lookedLayers) error {
		if l.by.IssuedAt.After(l.now.Add(release.MaxSkew)) { // remembered, it would outlive its key
			return cli.WithHint(refusal.New(refusal.Validity, "made current at %s, this machine's clock says %s",
				l.by.IssuedAt.Format(time.RFC3339), l.now.Format(time.RFC3339)),
				"set this machine's clock; if it is right, the one that built has a wrong one: 'caisson build' there again")
		}
		return nil
	}},
	{Name: "layers age", OK: func(l *lookedLayers) error {
		if l.by.IssuedAt.IsZero() {
			return nil // named by digest or version
		}
		return notOlder(Stamp{Digest: l.set.Index, IssuedAt: l.by.IssuedAt}, l.seen)
	}},
}

func layersAreReleased(l *lookedLayers) error {
	for _, layer := range l.set.Layers {
		if err := layer.Verify(l.ctx, l.policy.Release); err != nil {
			return cli.WithHint(err, "'caisson build --key' signs what it builds; trust.keys.release of the site names the key")
		}
	}
	return nil
}

func layersAreOurs(l *lookedLayers) error {
	for _, layer := range l.set.Layers {
		if layer.Fleet != l.policy.Fleet {
			return refusal.New(refusal.WrongFleet, "layer %s is for fleet %q, want %q", layer.Digest, layer.Fleet, l.policy.Fleet)
		}
	}
	return nil
}

// versionIsNamed: a tag is nobody's promise, the description is signed, and so is what is
// stated of an index. The latter goes first: a layer that a version has as the version
// before it had it is described as that one's.
func versionIsNamed(l *lookedLayers) error {
	if l.reference == release.Current || oci.ValidDigest(l.reference) {
		return nil
	}
	if by, err := l.set.Statement(l.ctx, l.policy.Release); err == nil && by.Version == l.reference && by.Fleet == l.policy.Fleet {
		return nil
	}
	for _, layer := range l.set.Layers {
		if layer.Version != l.reference && release.KeepTag(layer.Digest) != l.reference {
			return refusal.New(refusal.Contradiction, "layer:%s leads to version %q", l.reference, layer.Version)
		}
	}
	return nil
}

func currentIsStated(l *lookedLayers) (err error) {
	if l.reference != release.Current {
		return nil
	}
	l.by, err = l.set.Statement(l.ctx, l.policy.Release)
	if err != nil {
		return cli.WithHint(err, "'caisson build --key' signs what is current; --layer names another by digest")
	}
	if l.by.Fleet != l.policy.Fleet {
		return refusal.New(refusal.WrongFleet, "layer:current is stated for fleet %q, this is %q", l.by.Fleet, l.policy.Fleet)
	}
	return nil
}

// Layers returns the layers that a reference leads to, verified with the policy's
// release keys, and remembers how new the current ones are.
func (p *Publisher) Layers(ctx context.Context, policy Policy, reference string) ([]release.Layer, error) {
	set, err := p.Set(ctx, policy, reference)
	if err != nil {
		return nil, err
	}
	return set.Layers, nil
}

// Set is [Publisher.Layers] with what stands beside the layers.
func (p *Publisher) Set(ctx context.Context, policy Policy, reference string) (_ *release.Set, err error) {
	if policy.Beside { // release keys, too, are those of the newest version
		if policy, err = p.Follow(ctx, policy, false); err != nil {
			return nil, err
		}
	}
	place := p.Registry.Ref().String()
	seen, _ := p.Memory.At(place)
	set, err := release.Find(ctx, p.Registry, reference)
	if errors.Is(err, oci.ErrNotFound) && reference == release.Current {
		l := &looked{p: p, what: "layer:current", seen: seen}
		err = cmp.Or(p.allRules().absent.Run(l), err)
	}
	if err != nil {
		return nil, err
	}
	l := &lookedLayers{ctx: ctx, reference: reference, set: set, policy: policy, seen: seen.Layers, now: p.Now}
	if err := p.allRules().layers.Run(l); err != nil {
		return nil, fmt.Errorf("layer:%s: %w", reference, err)
	}
	if !l.by.IssuedAt.IsZero() && !p.Dry {
		seen.Fleet, seen.Layers = policy.Fleet, Stamp{Digest: set.Index, IssuedAt: l.by.IssuedAt}
		if err := p.Memory.Set(place, seen); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// succession is a layer that takes the place of another.
type succession struct {
	node     string
	old, new release.Layer
	lost     error // why old cannot be read
}

// successionChecks is the rule for a layer that nobody named by digest.
var successionChecks = check.List[*succession]{
	{Name: "older layer", OK: layerIsNotOlder},
}

func layerIsNotOlder(s *succession) error {
	const way = "--layer DIGEST names a layer on purpose, also an older one"
	if s.lost != nil {
		return cli.WithHint(refusal.New(refusal.Missing, "node %s: the age of its layer %s is not known: %w", s.node, s.old.Digest, s.lost), way)
	}
	before, err := time.Parse(time.RFC3339, s.old.Created)
	if err != nil {
		return nil // a layer without a date, as tests make it
	}
	if now, err := time.Parse(time.RFC3339, s.new.Created); err != nil || now.Before(before) {
		return cli.WithHint(refusal.New(refusal.Rollback, "node %s: layer %s was made at %s, its present one at %s", s.node,
			s.new.Digest, s.new.Created, s.old.Created), way)
	}
	return nil
}

// successions returns each layer that takes the place of another, read.
func (r *run) successions(ctx context.Context, todo []work) (all []*succession, err error) {
	type pair struct{ old, new string }
	done := map[pair]bool{}
	for _, w := range todo {
		if w.was == nil || w.was.Layer == "" || w.layer == "" || w.was.Layer == w.layer || done[pair{w.was.Layer, w.layer}] {
			continue
		}
		done[pair{w.was.Layer, w.layer}] = true
		s := &succession{node: w.name}
		if s.new, err = r.layer(ctx, w.layer); err != nil {
			return nil, err
		}
		if s.old, err = r.layer(ctx, w.was.Layer); lost(err) {
			s.lost, s.old.Digest = err, w.was.Layer
		} else if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// checkAges refuses layers older than those that the nodes have.
func (r *run) checkAges(all []*succession) error {
	for _, s := range all {
		if err := r.p.allRules().older.Run(s); err != nil {
			return err
		}
	}
	return nil
}

// checkLayers refuses layers older than those that the nodes have, unless an operator named
// them, and says what one for development costs that takes the place of another.
func (r *run) checkLayers(ctx context.Context, todo []work, named bool) error {
	all, err := r.successions(ctx, todo)
	if err == nil && !named {
		err = r.checkAges(all)
	}
	if err != nil {
		return err
	}
	said := map[string]bool{}
	for _, s := range all {
		if digest := s.new.Digest; s.new.Fast && s.lost == nil && !s.old.Fast && !said[digest] {
			said[digest] = true
			r.Say("warning: layer %s was built with --fast, the one before was not: nodes fetch more than a build without it would cost them", digest)
		}
	}
	return nil
}

// layer reads a layer that a verified row or overlay names, once.
func (r *run) layer(ctx context.Context, digest string) (release.Layer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l, ok := r.read[digest]; ok {
		return l, nil
	}
	l, err := release.Read(ctx, r.p.Registry, digest)
	if err == nil {
		if r.read == nil {
			r.read = map[string]release.Layer{}
		}
		r.read[digest] = l
	}
	return l, err
}

// checkReleased refuses a layer that was removed, or that nobody trusted released.
func (r *run) checkReleased(ctx context.Context, digest string) error {
	if digest == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err, known := r.released[digest]
	if !known {
		if _, err = r.p.Layers(ctx, r.v.policy, digest); r.released == nil {
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
func (r *run) findLayers(ctx context.Context) error {
	c := r.plan
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
			l, err := r.layer(ctx, digest)
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
