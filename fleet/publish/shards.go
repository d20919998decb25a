// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// putShard stores a shard, and keeps with it what its rows name.
func (p *Publisher) putShard(ctx context.Context, shard spec.FleetShard) (string, error) {
	raw, err := spec.Encode(shard)
	if err != nil {
		return "", err
	}
	doc := oci.Describe(oci.TypeFleetShard, raw)
	for _, d := range []oci.Descriptor{oci.Describe(oci.MediaTypeEmpty, oci.Empty), doc} {
		if err := p.Registry.PutData(ctx, oci.RepoNode, d); err != nil {
			return "", err
		}
	}
	content := contentOf(shard.Nodes)
	digest, err := p.putShardManifest(ctx, doc, content)
	if err == nil {
		return digest, nil
	}
	// A registry refuses what names a blob that it lost: then that is not kept.
	there := slices.DeleteFunc(slices.Clone(content), func(d oci.Descriptor) bool {
		ok, e := p.Registry.HasBlob(ctx, oci.RepoNode, d)
		return e == nil && !ok
	})
	if len(there) == len(content) {
		return "", err
	}
	p.Say("the registry lost %d overlays of earlier generations: no node can go back to them", len(content)-len(there))
	return p.putShardManifest(ctx, doc, there)
}

func (p *Publisher) putShardManifest(ctx context.Context, doc oci.Descriptor, content []oci.Descriptor) (string, error) {
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeFleetShard,
		Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(), Layers: append([]oci.Descriptor{doc.Bare()}, content...)})
	return p.Registry.PutManifest(ctx, oci.RepoNode, oci.MediaTypeManifest, raw, release.KeepTag(oci.Digest(raw)))
}

// contentOf lists the overlays of rows and those before them, each once.
func contentOf(rows index.Rows) []oci.Descriptor {
	sizes := map[string]int64{}
	for _, row := range rows {
		sizes[row.Overlay] = row.Size
		if b := row.Before; b != nil {
			sizes[b.Overlay] = b.Size
		}
	}
	var list []oci.Descriptor
	for _, digest := range slices.Sorted(maps.Keys(sizes)) {
		if sizes[digest] > 0 {
			list = append(list, oci.Descriptor{MediaType: oci.TypeOverlay, Digest: digest, Size: sizes[digest]})
		}
	}
	return list
}
