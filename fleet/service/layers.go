// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Layers remembers how layers that nodes run differ, as 'caisson diff' says it: a layer does not change.
//
// What nodes say that they run is a name alone. The layers are read where the fleet is
// published, and count once they are verified.
type Layers struct {
	read   func(ctx context.Context, digest string) (release.Layer, error) // verified, by its manifest's digest
	now    func() time.Time
	turn   chan struct{} // has a place for the one that reads
	layers map[string]layer
	found  map[[2]string]*release.Difference
}

type layer struct {
	release.Layer
	err error // why it cannot be had
	at  time.Time
}

const (
	kept     = 64          // layers, and pairs of them, that are remembered
	tryAgain = time.Minute // a layer that was not there, or was refused
)

// NewLayers returns a table that knows nothing.
func NewLayers(read func(context.Context, string) (release.Layer, error)) *Layers {
	return &Layers{read: read, now: time.Now, turn: make(chan struct{}, 1), layers: map[string]layer{},
		found: map[[2]string]*release.Difference{}}
}

// Between returns what differs from one layer to another, nil where nothing does. It is
// only read.
func (t *Layers) Between(ctx context.Context, from, to string) (*release.Difference, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	pair := [2]string{from, to}
	if d, ok := t.found[pair]; ok {
		return d, nil
	}
	a, err := t.layer(ctx, from)
	if err != nil {
		return nil, err
	}
	b, err := t.layer(ctx, to)
	if err != nil {
		return nil, err
	}
	list, _, err := release.Compare(ctx, []release.Layer{a}, []release.Layer{b}, false)
	if err != nil {
		return nil, err
	}
	if len(t.found) >= kept {
		clear(t.found)
	}
	t.found[pair] = nil
	if len(list) == 1 {
		t.found[pair] = &list[0]
	}
	return t.found[pair], nil
}

func (t *Layers) layer(ctx context.Context, digest string) (release.Layer, error) {
	if l, ok := t.layers[digest]; ok && (l.err == nil || t.now().Sub(l.at) < tryAgain) {
		return l.Layer, l.err
	}
	l, err := t.read(ctx, digest)
	if err != nil && refusal.Of(err) == "" && !errors.Is(err, oci.ErrNotFound) {
		return l, err // the registry's way may be better the next time
	}
	if len(t.layers) >= kept {
		clear(t.layers)
	}
	t.layers[digest] = layer{l, err, t.now()}
	return l, err
}
