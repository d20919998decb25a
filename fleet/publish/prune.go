// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/release"
	"github.com/caisson-os/caisson/spec"
)

// Prune removes layers that no node needs, see [release.Prune], while nobody
// publishes. With a policy in p.Trust what is published is verified first; without,
// it says that nothing is. Layers that an overlay or fleet:index names stay in
// every case, verified or not: a forged name can keep a layer, never remove one.
func (p *Publisher) Prune(ctx context.Context, keep int, dry bool) (out *release.Pruned, err error) {
	remove := func(ctx context.Context, batch *registry.Batch, v *view) error {
		needed, err := needed(ctx, p.Registry)
		if err != nil {
			return err
		}
		if v.index != nil {
			for name, n := range v.index.Nodes {
				if needed[n.Layer] == "" {
					needed[n.Layer] = "node " + name
				}
			}
		}
		out, err = release.Prune(ctx, p.Registry, batch, needed, keep, dry)
		return err
	}
	if p.Trust != nil && !dry {
		err = p.alone(ctx, *p.Trust, purpose{}, func(ctx context.Context, _ *Publisher, batch *registry.Batch, v *view) error {
			return remove(ctx, batch, v)
		})
		return out, err
	}
	v, err := p.lookForPrune(ctx)
	if err != nil {
		return nil, err
	}
	if dry {
		err = remove(ctx, nil, v)
		return out, err
	}
	batch, err := p.Registry.Batch()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, batch.Close()) }()
	err = remove(ctx, batch, v)
	return out, err
}

// lookForPrune returns what is published, verified when it is known by whose keys.
func (p *Publisher) lookForPrune(ctx context.Context) (*view, error) {
	if p.Trust != nil {
		return p.look(ctx, *p.Trust, purpose{})
	}
	p.Say("no site and no keys: what is published is not verified, whoever can push decides what is needed")
	c, err := document(ctx, p.Registry.Source(), "index", oci.TypeFleetIndex, maxIndex)
	if errors.Is(err, oci.ErrNotFound) {
		return &view{}, nil
	}
	if err != nil {
		return nil, err
	}
	v := &view{index: &spec.FleetIndex{}}
	if err := spec.Decode(c.Document, v.index); err != nil { // it might name any layer
		return nil, fmt.Errorf("fleet:index: %w", err)
	}
	return v, nil
}

// needed lists the layers that published overlays name, and why each stays: one of
// its nodes. An overlay that cannot be read stops everything: it might name any layer.
func needed(ctx context.Context, reg *registry.Registry) (map[string]string, error) {
	tags, err := reg.Tags(ctx, oci.RepoNode)
	if errors.Is(err, oci.ErrNotFound) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	live := map[string]string{}
	for _, tag := range tags {
		if strings.HasPrefix(tag, "mac-") || strings.HasPrefix(tag, "uuid-") {
			continue // another name of a node that has its own tag
		}
		resp, err := reg.Source().Manifest(ctx, oci.RepoNode, tag, "")
		if err != nil {
			return nil, fmt.Errorf("overlay of %s: %w", tag, err)
		}
		data, _, err := oci.ReadOverlay(ctx, reg.Source(), oci.RepoNode, resp)
		if err != nil {
			return nil, fmt.Errorf("overlay of %s: %w", tag, err)
		}
		var o spec.Overlay
		if err := spec.Decode(data, &o); err != nil {
			return nil, fmt.Errorf("overlay of %s: %w", tag, err)
		}
		if live[o.Layer] == "" {
			live[o.Layer] = "node " + o.Node
		}
	}
	return live, nil
}
