// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
	"github.com/caisson-os/caisson/trust/refusal"
)

// Layer is a released layer that overlays may name.
type Layer struct {
	Digest string // of its manifest
	spec.Layer
}

// Layers are the variants that one reference leads to.
type Layers struct {
	Named    string // what was asked for
	variants []Layer
}

// ResolveLayers follows a tag, or the digest of an index or a manifest, down to
// manifests, and verifies each one's own release signature.
func ResolveLayers(ctx context.Context, r *registry.Registry, reference string, release []*ecdsa.PublicKey) (*Layers, error) {
	if !oci.ValidTag(reference) && !oci.ValidDigest(reference) {
		return nil, cli.Usage("a digest is sha256:<64 hex digits>", "%.80q is neither a tag nor a digest", reference)
	}
	raw, _, err := r.Manifest(ctx, oci.RepoLayer, reference)
	if errors.Is(err, oci.ErrNotFound) {
		return nil, hint("caisson prune REF --dry-run lists the layers", "layer:%s: %w", reference, oci.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("layer:%s: %w", reference, err)
	}
	digests := []string{oci.Digest(raw)}
	if index, err := oci.ParseIndex(raw); err == nil {
		digests = nil
		for _, d := range index.Manifests {
			digests = append(digests, d.Digest)
		}
	} else if refusal.Of(err) != refusal.MediaType {
		return nil, fmt.Errorf("layer:%s: %w", reference, err)
	}
	out := &Layers{Named: reference}
	for _, digest := range digests {
		layer, _, err := trust.Layer(ctx, r.Source(), digest)
		if err != nil {
			return nil, err
		}
		if err := Released(ctx, r, digest, release); err != nil {
			return nil, err
		}
		out.variants = append(out.variants, Layer{digest, layer})
	}
	return out, nil
}

// For returns the layer of a variant. What decides is the signed description;
// the annotations of the index are not looked at. A single layer serves all.
func (l *Layers) For(variant string) (Layer, error) {
	for _, v := range l.variants {
		if v.Variant == variant {
			return v, nil
		}
	}
	if len(l.variants) == 1 {
		return l.variants[0], nil
	}
	return Layer{}, hint("run caisson build, then publish again", "layer:%s has no variant %q", l.Named, variant)
}

// maxReferrers is how many attachments of a layer are looked at.
const maxReferrers = 64

// Released looks among a manifest's referrers for a release signature by one of
// the keys. Bad ones beside it do no harm.
func Released(ctx context.Context, r *registry.Registry, digest string, release []*ecdsa.PublicKey) error {
	list, err := r.Referrers(ctx, oci.RepoLayer, digest)
	if err != nil {
		return fmt.Errorf("signatures of layer %s: %w", digest, err)
	}
	var unread error
	verdict := error(refusal.New(refusal.Unsigned, "layer %s has no signature", digest))
	for _, d := range list[:min(len(list), maxReferrers)] {
		bundle, err := readBundle(ctx, r, d)
		if err != nil { // an attachment of another kind, or a bad one
			if refusal.Of(err) == "" && !errors.Is(err, oci.ErrNotFound) {
				unread = fmt.Errorf("signatures of layer %s: %w", digest, err)
			}
			continue
		}
		err = sign.VerifyArtifact(bundle, digest, release)
		if err == nil {
			return nil
		}
		verdict = fmt.Errorf("layer %s: %w", digest, err)
	}
	return cmp.Or(unread, verdict)
}

// readBundle reads the bundle in a referrer's manifest. Neither the descriptor's
// artifactType nor its annotations are believed: registries differ in both.
func readBundle(ctx context.Context, r *registry.Registry, d oci.Descriptor) ([]byte, error) {
	resp, err := r.Source().Manifest(ctx, oci.RepoLayer, d.Digest, "")
	if err != nil {
		return nil, err
	}
	m, err := oci.ParseManifest(resp.Data)
	if err != nil {
		return nil, err
	}
	if len(m.Layers) != 1 || m.Layers[0].MediaType != oci.TypeBundle {
		return nil, refusal.New(refusal.MediaType, "%s holds no bundle", d.Digest)
	}
	return oci.ReadBlob(ctx, r.Source(), oci.RepoLayer, m.Layers[0], oci.MaxBundle)
}
