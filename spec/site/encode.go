// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/report"
)

// MaxOverlay is the largest overlay that a node reads.
const MaxOverlay = 2 << 20

// Compile returns the one encoding of a node's overlay: the bytes that are
// signed and published. Layer and variant are those of [spec.Overlay].
func (s *Site) Compile(node, layer, variant string) ([]byte, error) {
	parts, err := s.compile(node, layer, variant)
	return slices.Concat(parts...), err
}

// Digest returns the SHA-256 of what [Site.Compile] does.
func (s *Site) Digest(node, layer, variant string) (string, error) {
	parts, err := s.compile(node, layer, variant)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return digest.From(h), nil
}

// compile returns the parts of a node's overlay, one behind the other.
func (s *Site) compile(node, layer, variant string) ([][]byte, error) {
	n, err := s.fleet.Node(node)
	if err != nil {
		return nil, err
	}
	o, key, err := s.overlay(n, layer)
	if err != nil {
		return nil, err
	}
	if err := s.services.Publishable(o.Services); err != nil {
		return nil, err
	}
	o.Variant = variant
	return s.encoder.encode(o, key)
}

// encoder encodes overlays, and keeps items that many nodes share encoded.
type encoder struct {
	lock  sync.RWMutex
	items map[itemsKey][]byte
}

// encode is spec.Encode in parts, with the items, by far the most of it, encoded once
// for all nodes that share them: they are the last field of an overlay.
func (e *encoder) encode(o *spec.Overlay, key *itemsKey) ([][]byte, error) {
	const last = `"items":`
	items, err := e.encodedItems(&o.Items, key)
	if err != nil {
		return nil, err
	}
	rest := *o
	rest.Items = spec.Items{}
	data, err := spec.Encode(&rest)
	if err != nil {
		return nil, err
	}
	data, ok := bytes.CutSuffix(data, []byte(last+"{}}"))
	if !ok {
		return nil, fmt.Errorf("encode overlay of %s: items are not its last field", o.Node)
	}
	if n := len(data) + len(last) + len(items) + 1; n > MaxOverlay {
		return nil, report.Invalidf("move large scripts into a package",
			"the overlay of %s has %d bytes, a node reads at most %d", o.Node, n, MaxOverlay)
	}
	return [][]byte{data, []byte(last), items, []byte("}")}, nil
}

// Oversized returns the first node that could not read its overlay, and why. Of nodes with
// the same items one is looked at.
func (s *Site) Oversized() (inventory.Node, error) {
	seen := map[itemsKey]bool{}
	for _, n := range s.fleet.Nodes {
		_, key := s.fragments(n)
		if key != nil && seen[*key] || s.expanded == nil && s.maintenance.Operates() {
			continue
		}
		o, key, err := s.overlay(n, "")
		if err == nil {
			_, err = s.encoder.encode(o, key)
		}
		if err != nil {
			return n, err
		}
		if key != nil {
			seen[*key] = true
		}
	}
	return inventory.Node{}, nil
}

// itemsKey is the identity of a node's items: the fragments that they are made of,
// in the order of module.All. Nodes of one target share its fragment.
type itemsKey [len(module.All)]*module.Fragment

// maxEncoded bounds the cache; a fleet has few combinations of shared targets.
const maxEncoded = 256

// encodedItems encodes a node's items; key is nil when they are the node's alone.
func (e *encoder) encodedItems(i *spec.Items, key *itemsKey) ([]byte, error) {
	if key == nil {
		return spec.Encode(i)
	}
	e.lock.RLock()
	data, ok := e.items[*key]
	e.lock.RUnlock()
	if ok {
		return data, nil
	}
	data, err := spec.Encode(i)
	if err != nil {
		return nil, err
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.items == nil {
		e.items = map[itemsKey][]byte{}
	}
	if len(e.items) < maxEncoded {
		e.items[*key] = data
	}
	return data, nil
}
