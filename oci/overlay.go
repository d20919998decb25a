// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"errors"
	"io"

	"github.com/caisson-os/caisson/spec/refusal"
)

// A signed document is a manifest whose first layer is the document and whose
// other layers are sigstore bundles. The layers are also inline while the
// manifest stays small, so that one request brings all; the blobs are pushed all
// the same, for registries that collect garbage and tools that know no data field.

// OverlayManifest returns the manifest of a node's overlay and the blobs to push
// before it, their content in Data.
func OverlayManifest(overlay []byte, bundles ...[]byte) (raw []byte, blobs []Descriptor) {
	return DocumentManifest(TypeOverlay, overlay, bundles...)
}

// InlineManifest is the manifest of a signed document whose layers are inline, however large.
func InlineManifest(documentType string, doc []byte, bundles ...[]byte) Manifest {
	m := Manifest{
		SchemaVersion: 2, MediaType: MediaTypeManifest, ArtifactType: documentType,
		Config: Describe(MediaTypeEmpty, Empty),
		Layers: []Descriptor{Describe(documentType, doc)},
	}
	for _, b := range bundles {
		m.Layers = append(m.Layers, Describe(TypeBundle, b))
	}
	return m
}

// DocumentManifest is OverlayManifest for any signed document.
func DocumentManifest(documentType string, doc []byte, bundles ...[]byte) (raw []byte, blobs []Descriptor) {
	m := InlineManifest(documentType, doc, bundles...)
	blobs = append([]Descriptor{m.Config}, m.Layers...)
	if raw = Encode(m); len(raw) < MaxInline {
		return raw, blobs
	}
	m.Layers = append([]Descriptor(nil), m.Layers...)
	for i := range m.Layers {
		m.Layers[i] = m.Layers[i].Bare()
	}
	return Encode(m), blobs
}

// ReadOverlay takes an overlay and its bundles out of a manifest that was read
// before. What is not inline is read from repo; everything is hashed again.
func ReadOverlay(ctx context.Context, s Source, repo string, r Response) (overlay []byte, bundles [][]byte, err error) {
	return ReadDocument(ctx, s, r, Artifact{repo, TypeOverlay, MaxOverlay})
}

// Artifact says where documents of a kind are.
type Artifact struct {
	Repo  string
	Type  string // media type of the document
	Limit int64  // bytes that a document may have
}

// ReadDocument is ReadOverlay for any signed document. A bundle that lies or is
// too large is left out when there are others: a client that can push could otherwise
// block a good signature with a bad one beside it.
func ReadDocument(ctx context.Context, s Source, r Response, of Artifact) (doc []byte, bundles [][]byte, err error) {
	return whole.ReadDocument(ctx, s, r, of)
}

func (r rules) ReadDocument(ctx context.Context, s Source, resp Response, of Artifact) (doc []byte, bundles [][]byte, err error) {
	m, err := r.ParseManifest(resp.Data)
	if err != nil {
		return nil, nil, err
	}
	if err := r.document.Run(document{m, of.Type}); err != nil {
		return nil, nil, err
	}
	if doc, err = r.ReadBlob(ctx, s, of.Repo, m.Layers[0], of.Limit); err != nil {
		return nil, nil, err
	}
	var last error
	for _, d := range m.Layers[1:] {
		b, err := r.ReadBlob(ctx, s, of.Repo, d, MaxBundle)
		switch {
		case err == nil:
			bundles = append(bundles, b)
		case refusal.Of(err) == refusal.Oversize:
			last = refusal.New(refusal.BundleSize, "signature %w", err)
		case refusal.Of(err) != "" || errors.Is(err, ErrNotFound):
			last = err
		default:
			return nil, nil, err // worth another try
		}
	}
	if bundles == nil && last != nil {
		return nil, nil, last
	}
	return doc, bundles, nil
}

// ReadKept is [ReadDocument] for a manifest that was kept with everything inline, which
// makes it larger than one of a registry may be. The caller has bounded it. What is not
// inline is not there.
func ReadKept(raw []byte, documentType string, limit int64) (doc []byte, bundles [][]byte, err error) {
	r := whole
	r.parse = r.parse.Without("size")
	return r.ReadDocument(context.Background(), inlineOnly{}, Response{Data: raw}, Artifact{RepoNode, documentType, limit})
}

// inlineOnly is a source that holds nothing: what is kept is whole or useless.
type inlineOnly struct{}

var errNotInline = errors.New("what was kept is not whole")

func (inlineOnly) Manifest(context.Context, string, string, string) (Response, error) {
	return Response{}, errNotInline
}

func (inlineOnly) Blob(context.Context, string, Descriptor, int64) (io.ReadCloser, error) {
	return nil, errNotInline
}

func artifactIsWanted(d document) error {
	return refusal.If(d.ArtifactType != d.documentType, refusal.MediaType, "the artifact is %.80q, not %q", d.ArtifactType, d.documentType)
}

func documentIsFirst(d document) error {
	return refusal.If(len(d.Layers) == 0 || d.Layers[0].MediaType != d.documentType, refusal.Shape, "the manifest's first layer is not %q",
		d.documentType)
}

func bundlesCapped(d document) error {
	n := len(d.Layers) - 1
	return refusal.If(n > MaxBundles, refusal.BundleFlood, "%d signature bundles, at most %d are looked at", n, MaxBundles)
}

// ReadNamed reads the first layer of a manifest that a signed document names by
// digest. The other layers are neither signatures nor read: they keep blobs alive.
func ReadNamed(ctx context.Context, s Source, r Response, of Artifact) ([]byte, error) {
	m, err := ParseManifest(r.Data)
	if err != nil {
		return nil, err
	}
	if err := whole.document.Without("flood").Run(document{m, of.Type}); err != nil {
		return nil, err
	}
	return ReadBlob(ctx, s, of.Repo, m.Layers[0], of.Limit)
}
