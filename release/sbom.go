// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"

	"github.com/caisson-os/caisson/builder/sbom"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
)

// SBOM returns the list of packages that the build attached to a layer, an SPDX 2.3
// document. It is not signed; the signed provenance names its digest.
func (l Layer) SBOM(ctx context.Context) ([]byte, error) {
	list, err := l.registry.Referrers(ctx, oci.RepoLayer, l.Digest)
	if err != nil {
		return nil, fmt.Errorf("what is attached to %s: %w", l.Digest, err)
	}
	for _, d := range list[:min(len(list), maxReferrers)] {
		// Not every registry says in its list what kind an attachment is.
		resp, err := l.registry.Source().Manifest(ctx, oci.RepoLayer, d.Digest, "")
		if err != nil {
			return nil, err
		}
		m, err := oci.ParseManifest(resp.Data)
		if err == nil && m.ArtifactType == sbom.MediaTypeSPDX && len(m.Layers) == 1 {
			return oci.ReadBlob(ctx, l.registry.Source(), oci.RepoLayer, m.Layers[0], oci.MaxAttested)
		}
	}
	return nil, cli.WithHint(fmt.Errorf("layer %s has no SBOM", l.Digest), "'caisson build' attaches one")
}
