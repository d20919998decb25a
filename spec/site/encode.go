// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/report"
)

// MaxOverlay is the largest overlay that a node reads.
const MaxOverlay = 2 << 20

// Compile returns the one encoding of a node's overlay: the bytes that are
// signed and published. Layer and variant are those of [spec.Overlay].
func (s *Site) Compile(node, layer, variant string) ([]byte, error) {
	i, ok := s.byName[node]
	if !ok {
		return nil, s.noNode(node)
	}
	o, shared := s.overlay(s.nodes[i], layer)
	o.Variant = variant
	return s.encode(o, shared)
}

// encode is spec.Encode with the items, by far the most of it, encoded once for
// all nodes that share them: they are the last field of an overlay.
func (s *Site) encode(o *spec.Overlay, shared bool) ([]byte, error) {
	const last = `"items":`
	items, err := s.encodedItems(&o.Items, shared)
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
	data = slices.Concat(data, []byte(last), items, []byte("}"))
	if len(data) > MaxOverlay {
		return nil, report.Invalidf("move large scripts into a package", "the overlay of %s has %d bytes, a node reads at most %d", o.Node, len(data), MaxOverlay)
	}
	return data, nil
}

// itemsKey is the identity of items: the lists are shared between the nodes of
// a target, so where they begin tells them apart.
type itemsKey struct {
	mounts  *spec.Mount
	limits  *spec.Limit
	sysctl  *spec.Sysctl
	ethtool *spec.Feature
	exec    *spec.Exec
	perm    *spec.Perm
}

func first[T any](list []T) *T {
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

// maxEncoded bounds the cache; a fleet has few combinations of shared targets.
const maxEncoded = 256

func (s *Site) encodedItems(i *spec.Items, shared bool) ([]byte, error) {
	if !shared {
		return spec.Encode(i)
	}
	key := itemsKey{first(i.Mounts), first(i.Limits), first(i.Sysctl), first(i.Ethtool), first(i.Exec), i.Perm}
	s.encodedLock.RLock()
	data, ok := s.encoded[key]
	s.encodedLock.RUnlock()
	if ok {
		return data, nil
	}
	data, err := spec.Encode(i)
	if err != nil {
		return nil, err
	}
	s.encodedLock.Lock()
	defer s.encodedLock.Unlock()
	if s.encoded == nil {
		s.encoded = map[itemsKey][]byte{}
	}
	if len(s.encoded) < maxEncoded {
		s.encoded[key] = data
	}
	return data, nil
}
