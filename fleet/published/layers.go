// SPDX-License-Identifier: Apache-2.0

package published

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
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
func (r *Reader) Layers(ctx context.Context, policy Policy, reference string) ([]release.Layer, error) {
	set, err := r.Set(ctx, policy, reference)
	if err != nil {
		return nil, err
	}
	return set.Layers, nil
}

// Set is [Reader.Layers] with what stands beside the layers.
func (r *Reader) Set(ctx context.Context, policy Policy, reference string) (_ *release.Set, err error) {
	if policy.Beside { // release keys, too, are those of the newest version
		if policy, err = r.Follow(ctx, policy, false); err != nil {
			return nil, err
		}
	}
	place := r.Registry.Ref().String()
	seen, _ := r.Memory.At(place)
	set, err := release.Find(ctx, r.Registry, reference)
	if errors.Is(err, oci.ErrNotFound) && reference == release.Current {
		l := &looked{r: r, what: "layer:current", seen: seen}
		err = cmp.Or(r.allRules().absent.Run(l), err)
	}
	if err != nil {
		return nil, err
	}
	l := &lookedLayers{ctx: ctx, reference: reference, set: set, policy: policy, seen: seen.Layers, now: r.Now}
	if err := r.allRules().layers.Run(l); err != nil {
		return nil, fmt.Errorf("layer:%s: %w", reference, err)
	}
	if !l.by.IssuedAt.IsZero() && !r.Dry {
		seen.Fleet, seen.Layers = policy.Fleet, Stamp{Digest: set.Index, IssuedAt: l.by.IssuedAt}
		if err := r.Memory.Set(place, seen); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// Succession is a layer that takes the place of another.
type Succession struct {
	Node     string
	Old, New release.Layer
	Lost     error // why Old cannot be read
}

// CheckAge refuses a layer that is older than the one that a node has.
func (r *Reader) CheckAge(s *Succession) error { return r.allRules().older.Run(s) }

// successionChecks is the rule for a layer that nobody named by digest.
var successionChecks = check.List[*Succession]{
	{Name: "older layer", OK: layerIsNotOlder},
}

func layerIsNotOlder(s *Succession) error {
	const way = "--layer DIGEST names a layer on purpose, also an older one"
	if s.Lost != nil {
		return cli.WithHint(refusal.New(refusal.Missing, "node %s: the age of its layer %s is not known: %w", s.Node, s.Old.Digest, s.Lost), way)
	}
	before, err := time.Parse(time.RFC3339, s.Old.Created)
	if err != nil {
		return nil // a layer without a date, as tests make it
	}
	if now, err := time.Parse(time.RFC3339, s.New.Created); err != nil || now.Before(before) {
		return cli.WithHint(refusal.New(refusal.Rollback, "node %s: layer %s was made at %s, its present one at %s", s.Node,
			s.New.Digest, s.New.Created, s.Old.Created), way)
	}
	return nil
}

// Lost reports whether something is gone or damaged, and not only out of reach.
func Lost(err error) bool { return errors.Is(err, oci.ErrNotFound) || refusal.Of(err) != "" }
