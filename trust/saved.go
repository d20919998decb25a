// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

// MaxSaved is the most that a saved candidate takes: base64 of all that a document and
// its bundles may have, and the manifest around them. One of a registry has less, since
// there large blobs are not inline.
const MaxSaved = (oci.MaxOverlay+oci.MaxBundles*oci.MaxBundle)/3*4 + 64<<10

// saved is a manifest whose layers are always inline.
func saved(kind string, c Candidate) []byte {
	m := oci.Manifest{
		SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: kind,
		Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty),
		Layers: []oci.Descriptor{oci.Describe(kind, c.Document)},
	}
	for _, b := range c.Bundles {
		m.Layers = append(m.Layers, oci.Describe(oci.TypeBundle, b))
	}
	return oci.Encode(m)
}

func load(data []byte, kind string, limit int64) (Candidate, error) {
	if len(data) > MaxSaved {
		return Candidate{}, refusal.New(refusal.Oversize, "saved candidate of %d bytes", len(data))
	}
	doc, bundles, err := oci.ReadKept(data, kind, limit)
	if err != nil {
		return Candidate{}, err
	}
	// Of these very bytes, so that "not modified" means them, whatever is written beside them.
	manifest, _ := oci.DocumentManifest(kind, doc, bundles...)
	return Candidate{ETag: oci.Digest(manifest), Document: doc, Bundles: bundles}, nil
}
