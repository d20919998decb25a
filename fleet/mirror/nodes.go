// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// Carried holds what [Mirror.Nodes] has copied.
type Carried struct {
	Result
	Nodes   int       // whose overlays are there
	Expires time.Time // of what expires first: a node that holds what has expired takes no other overlay from then on
	First   string    // what that is, for people
}

// Nodes copies what nodes need to come up where nothing else is to be had: their overlays,
// the layers that those name, images of services, what disks start, and fleet:current; of one
// node, or of all where none is named. It needs a policy.
func (m *Mirror) Nodes(ctx context.Context, name string) (*Carried, error) {
	if err := m.verify(ctx, m.From); err != nil {
		return nil, err
	}
	here, err := m.From.Find(ctx, *m.Policy)
	if err != nil {
		return nil, err
	}
	rows, err := here.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	if name != "" {
		row, ok := rows[name]
		if !ok {
			return nil, cli.Usage("publish it first: 'caisson publish'", "%s has no overlay of node %q", m.From.Registry.Ref(), name)
		}
		rows = map[string]spec.Published{name: row}
	}
	var layers []string
	for _, row := range rows {
		if row.Layer != "" && !slices.Contains(layers, row.Layer) {
			layers = append(layers, row.Layer)
		}
	}
	slices.Sort(layers)
	loaders, err := m.From.Loaders(ctx)
	if err != nil {
		return nil, err
	}
	result, err := m.start(func(r *run) error {
		for _, digest := range layers {
			if err := r.copy(ctx, oci.RepoLayer, named{digest, []string{release.KeepTag(digest)}}); err != nil {
				return err
			}
		}
		if err := r.kept(ctx, oci.RepoService); err != nil {
			return err
		}
		for _, l := range loaders {
			if err := r.copy(ctx, oci.RepoLoader, named{l.Manifest, []string{release.KeepTag(l.Manifest)}}); err != nil {
				return err
			}
		}
		if err := r.overlays(ctx, tagsOf(rows)); err != nil {
			return err
		}
		list, err := r.resolve(ctx, oci.RepoFleet, []string{"current"})
		for _, n := range list {
			if err := r.copy(ctx, oci.RepoFleet, n); err != nil {
				return err
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	c := &Carried{Result: *result, Nodes: len(rows), Expires: here.CurrentExpires(), First: "fleet:current"}
	for _, node := range plain.Names(maps.Keys(rows)) {
		if at := time.Unix(rows[node].Expires, 0); at.Before(c.Expires) {
			c.Expires, c.First = at, "the overlay of "+node
		}
	}
	return c, nil
}
