// SPDX-License-Identifier: Apache-2.0

// Package publish signs what nodes shall be and puts it where they look.
//
// One [Publisher] is one fleet in one registry. Publish gives nodes new
// overlays, Pin gives them another layer, Refresh signs anew what grows old;
// Verify looks at all of it with the eyes of a node. Every change takes the next
// generation of the whole fleet; nodes whose overlay does not change keep theirs,
// so that a publish costs what it changes. The order of writes is: the generation
// is reserved in fleet:index, overlays and their tags, fleet:index, fleet:current.
// Cut anywhere, a repeated publish heals it and no generation ever names two
// contents.
//
// Before anything is pushed it goes through trust.Accept, the node's own
// decision: what nodes would refuse is never published. Only cmd/caisson
// imports this package.
package publish

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

// Publisher is a fleet in a registry, and who signs for it.
type Publisher struct {
	Registry *registry.Registry
	Signers  []crypto.Signer // operators
	Now      time.Time
	Say      func(format string, args ...any)

	fresh *trust.FleetState // fleet:current as it is published; nil before the first time
}

// Policy is what a site says about trust. Pin and Refresh take it from the
// published fleet:index.
type Policy struct {
	Fleet     string
	Operator  []*ecdsa.PublicKey
	Release   []*ecdsa.PublicKey
	Threshold int
	Lifetime  time.Duration
	Epoch     []*ecdsa.PublicKey // who may raise the epoch; not in the index
}

// freshFor is how long fleet:current is fresh: `caisson refresh` runs daily, and
// two of its runs may fail.
const freshFor = 3 * 24 * time.Hour

// Result is what publish, pin and refresh -o json print.
type Result struct {
	Fleet      string     `json:"fleet"`
	Epoch      uint64     `json:"epoch"`
	Generation uint64     `json:"generation"`
	Published  []NodeLine `json:"published"` // new generation
	Resigned   []NodeLine `json:"resigned"`  // same content and generation, new signature
	Unchanged  int        `json:"unchanged"`
}

// NodeLine is one node in a [Result].
type NodeLine struct {
	Node       string `json:"node"`
	Overlay    string `json:"overlay"`
	Layer      string `json:"layer"`
	Generation uint64 `json:"generation"`
}

// Node is what a node shall be.
type Node struct {
	Name  string
	Match spec.Match
	Layer string                 // digest of its manifest
	Knows []string               // features of the layer's agent, see spec.Features
	Doc   func() ([]byte, error) // its overlay's one encoding, asked for once: a fleet's are too many to hold
}

// checkSigners sees to it that nodes will believe who signs here.
func (p *Publisher) checkSigners(policy Policy) error {
	seen := map[string]bool{}
	for _, s := range p.Signers {
		pub, ok := s.Public().(*ecdsa.PublicKey)
		if !ok || !slices.ContainsFunc(policy.Operator, func(k *ecdsa.PublicKey) bool { return k.Equal(pub) }) {
			return hint("trust.keys.operator of the site names who may", "the signing key is none of the site's operator keys")
		}
		seen[sign.KeyID(pub)] = true
	}
	if len(seen) < policy.Threshold {
		sign := "one key signs"
		if len(seen) != 1 {
			sign = fmt.Sprintf("%d keys sign", len(seen))
		}
		return hint("give --key once for each", "%s, the site demands %d", sign, policy.Threshold)
	}
	return nil
}

// errUnpublished is returned where a registry holds no fleet yet.
var errUnpublished = errors.New("holds no published fleet")

// readIndex reads fleet:index and verifies it with the keys.
func (p *Publisher) readIndex(ctx context.Context, keys []*ecdsa.PublicKey) (*spec.FleetIndex, error) {
	src := p.Registry.Source()
	resp, err := src.Manifest(ctx, oci.RepoFleet, "index", "")
	if errors.Is(err, oci.ErrNotFound) {
		return nil, hint("is that its prefix? 'caisson publish' makes a fleet", "%s %w", p.Registry.Ref(), errUnpublished)
	}
	if err != nil {
		return nil, err
	}
	raw, bundles, err := oci.ReadDocument(ctx, src, oci.RepoFleet, resp, oci.TypeFleetIndex, maxIndex)
	if err != nil {
		return nil, fmt.Errorf("fleet:index: %w", err)
	}
	v, err := sign.VerifyFleet(bundles, keys, 1, oci.Digest(raw), sign.PredicateIndex)
	if err != nil {
		return nil, fmt.Errorf("fleet:index: %w", err)
	}
	var x spec.FleetIndex
	if err := spec.Decode(raw, &x); err != nil {
		return nil, fmt.Errorf("fleet:index: %w", err)
	}
	if x.Fleet != v.Predicate.Fleet || x.Kind != spec.KindFleetIndex {
		return nil, fmt.Errorf("fleet:index is of fleet %q, its statement of %q", x.Fleet, v.Predicate.Fleet)
	}
	return &x, nil
}

// maxIndex holds some 200,000 nodes.
const maxIndex = 64 << 20

func hint(hint, format string, args ...any) error {
	return &hinted{fmt.Errorf(format, args...), hint}
}

type hinted struct {
	error
	hint string
}

func (h *hinted) Hint() string  { return h.hint }
func (h *hinted) Unwrap() error { return h.error }
