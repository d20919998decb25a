// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"fmt"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/refusal"
	"github.com/caisson-os/caisson/spec"
)

// Layer reads the description of the layer whose manifest has the digest. Since
// the digest was signed, so is all that it leads to; what is checked besides is
// that the parts belong together, before gigabytes are fetched.
func Layer(ctx context.Context, src oci.Source, digest string) (spec.Layer, *oci.Manifest, error) {
	var layer spec.Layer
	resp, err := src.Manifest(ctx, oci.RepoLayer, digest, "")
	if err != nil {
		return layer, nil, err
	}
	m, err := oci.ParseManifest(resp.Data)
	if err != nil {
		return layer, nil, fmt.Errorf("layer %s: %w", digest, err)
	}
	if m.ArtifactType != oci.TypeLayer || m.Config.MediaType != oci.TypeLayerConfig {
		return layer, nil, refusal.New(refusal.MediaType, "layer %s is %.80q with config %.80q", digest, m.ArtifactType, m.Config.MediaType)
	}
	config, err := oci.ReadBlob(ctx, src, oci.RepoLayer, m.Config, oci.MaxConfig)
	if err != nil {
		return layer, nil, fmt.Errorf("layer %s: %w", digest, err)
	}
	if err := spec.Decode(config, &layer); err != nil {
		return layer, nil, refusal.New(refusal.Layer, "layer %s: %w", digest, err)
	}
	return layer, m, complete(layer, m)
}

// complete refuses a description that names content which the manifest does not
// hold: such content would be fetched under sizes nobody capped.
func complete(layer spec.Layer, m *oci.Manifest) error {
	if layer.APIVersion != spec.APIVersion || layer.Kind != spec.KindLayer {
		return refusal.New(refusal.Layer, "the layer's description is %.40q %.40q", layer.APIVersion, layer.Kind)
	}
	held := map[spec.Blob]bool{}
	for _, d := range m.Layers {
		held[spec.Blob{Digest: d.Digest, Size: d.Size}] = true
	}
	needed := []spec.Blob{{Digest: layer.Kernel.Digest, Size: layer.Kernel.Size}, layer.Initrd}
	for _, i := range layer.Images {
		needed = append(needed, spec.Blob{Digest: i.Digest, Size: i.Size})
		if i.Chunks != nil {
			needed = append(needed, *i.Chunks)
		}
	}
	for _, b := range needed {
		if b != (spec.Blob{}) && !held[b] {
			return refusal.New(refusal.Layer, "the layer's manifest does not hold %s with %d bytes", b.Digest, b.Size)
		}
	}
	return nil
}

// ForMachine refuses a layer of another fleet or architecture (as Go names it).
func ForMachine(layer spec.Layer, b spec.Bootstrap, arch string) error {
	switch {
	case layer.Arch != arch:
		return refusal.New(refusal.WrongArch, "the layer is for %.40q, this machine is %q", layer.Arch, arch)
	case layer.Fleet != b.Fleet:
		return refusal.New(refusal.WrongFleet, "the layer is of fleet %.80q, this is %q", layer.Fleet, b.Fleet)
	}
	return nil
}
