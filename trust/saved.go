// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"context"
	"errors"
	"io"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/trust/refusal"
)

// MaxSaved is the most that a saved candidate takes. The caps of its parts are
// such that base64 of them all fits.
const MaxSaved = oci.MaxManifest

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
	doc, bundles, err := oci.ReadDocument(context.Background(), inlineOnly{}, oci.RepoNode, oci.Response{Data: data}, kind, limit)
	return Candidate{Document: doc, Bundles: bundles}, err
}

// inlineOnly is a source that holds nothing: what is saved is whole or useless.
type inlineOnly struct{}

var errNotInline = errors.New("the saved candidate is not whole")

func (inlineOnly) Manifest(context.Context, string, string, string) (oci.Response, error) {
	return oci.Response{}, errNotInline
}

func (inlineOnly) Blob(context.Context, string, oci.Descriptor, int64) (io.ReadCloser, error) {
	return nil, errNotInline
}
