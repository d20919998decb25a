// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"context"
	"fmt"

	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/spec"
)

// Given returns what a node may have entered: the core of each of its overlays that is kept, on
// each of its layers, since a node goes on with a newer overlay on the layer before. What only
// keys signed that count no more is not among them.
func Given(ctx context.Context, f *publish.Fleet, node string) (map[Root]Layer, error) {
	list, err := history.List(ctx, f, node, nil)
	if err != nil {
		return nil, err
	}
	overlays, layers := map[string]*spec.Overlay{}, map[string]Layer{}
	for _, e := range list {
		if e.Mark != "" || e.Refused != "" || e.Node == nil || e.Node.Overlay == "" {
			continue
		}
		o, err := f.Content(ctx, node, e.Node.Content())
		if err != nil {
			return nil, err
		}
		overlays[e.Node.Overlay] = o
		if o.Layer == "" { // of a host that caisson did not boot
			continue
		}
		if _, read := layers[o.Layer]; !read {
			l, err := f.Layer(ctx, o.Layer)
			if err != nil {
				return nil, fmt.Errorf("layer %s: %w", o.Layer, err)
			}
			layers[o.Layer] = Layer{Kernel: l.Kernel.Digest, Initrd: l.Initrd.Digest}
		}
	}
	roots := map[Root]Layer{}
	for overlay, o := range overlays {
		for name, layer := range layers {
			core, err := spec.RootID(o, name)
			if err != nil {
				return nil, err
			}
			at := Root{name, core}
			layer.Overlays = append(roots[at].Overlays, overlay) // an overlay that differs in what is live has the same core
			roots[at] = layer
		}
	}
	return roots, nil
}
