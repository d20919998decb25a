// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"maps"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// Between returns what changed from one generation to another, node by node, in the
// form of a plan: what going from the first to the second did, or would do.
func Between(ctx context.Context, f *publish.Fleet, from, to publish.Generation) (*plan.Plan, error) {
	var rows [2]map[string]spec.Published
	for i, g := range []publish.Generation{from, to} {
		past, err := f.Past(ctx, g)
		if err != nil {
			return nil, err
		}
		if rows[i], err = past.Nodes(ctx); err != nil {
			return nil, err
		}
	}
	names := maps.Clone(rows[0])
	maps.Copy(names, rows[1])
	l := &layers{release.Planned{Context: ctx, Read: f.Layer, Say: f.Say}}
	found := plan.NewDifferences(l)
	out := &plan.Plan{Nodes: []plan.NodePlan{}, Layers: []plan.LayerPlan{}, NotLooked: []string{}}
	for _, name := range plain.Names(maps.Keys(names)) {
		a, wasThere := rows[0][name]
		b, isThere := rows[1][name]
		d := plan.Difference{Node: name, HoldFrom: hold.String(a.Holds), HoldTo: hold.String(b.Holds)}
		var err error
		if wasThere && (!isThere || a.Overlay != b.Overlay) {
			if d.From, err = f.Content(ctx, name, content(a)); err != nil {
				return nil, err
			}
		}
		if isThere && (!wasThere || a.Overlay != b.Overlay) {
			if d.To, err = f.Content(ctx, name, content(b)); err != nil {
				return nil, err
			}
		}
		out.Nodes = append(out.Nodes, found.Plan(d))
	}
	return out, l.Err
}

// layers are those of a fleet, as it was read: one that is gone, or that nobody released,
// is not known.
type layers struct{ release.Planned }

// Next implements plan.Layers: nothing is to come.
func (*layers) Next(site.Variant) *plan.Layer { return nil }

func content(row spec.Published) spec.Content {
	return spec.Content{Overlay: row.Overlay, Size: row.Size, Layer: row.Layer, Generation: row.Generation}
}
