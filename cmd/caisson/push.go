// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/sbom"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// publisher pushes what was built.
type publisher struct {
	reg  *registry.Registry
	keys buildKeys
	site string
}

// keepTag is the tag that keeps a layer from a registry's garbage collection
// whatever happens to its version tag. It is not "sha256-<hex>": that tag
// belongs to the list of referrers on registries without the referrers API.
func keepTag(digest string) string { return "keep-" + strings.Replace(digest, ":", "-", 1) }

// layer pushes one variant and returns its descriptor for the index. suite is
// the distribution's release, for its descriptions.
func (p publisher) layer(ctx context.Context, r *builder.Result, suite string) (oci.Descriptor, error) {
	config, err := spec.Encode(r.Layer)
	if err != nil {
		return oci.Descriptor{}, err
	}
	m := oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer,
		Config: oci.Describe(oci.TypeLayerConfig, config).Bare(),
		Annotations: map[string]string{
			"org.opencontainers.image.created": r.Layer.Created, "org.opencontainers.image.version": r.Layer.Version,
			oci.AnnotationVariant: r.Layer.Variant,
		},
	}
	for _, blob := range r.Blobs {
		d := oci.Descriptor{MediaType: blob.MediaType, Digest: blob.Digest, Size: blob.Size,
			Annotations: map[string]string{"org.opencontainers.image.title": blob.Title}}
		open := func() (io.ReadCloser, error) { return os.Open(blob.Path) }
		if err := p.reg.PutBlob(ctx, oci.RepoLayer, d, open); err != nil {
			return oci.Descriptor{}, fmt.Errorf("%s: %w", blob.Title, err)
		}
		m.Layers = append(m.Layers, d)
	}
	if err := p.reg.PutData(ctx, oci.RepoLayer, oci.Describe(oci.TypeLayerConfig, config)); err != nil {
		return oci.Descriptor{}, err
	}
	raw := oci.Encode(m)
	digest, err := p.reg.PutManifest(ctx, oci.RepoLayer, oci.MediaTypeManifest, raw, keepTag(oci.Digest(raw)))
	if err != nil {
		return oci.Descriptor{}, err
	}
	d := oci.Descriptor{MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer, Digest: digest, Size: int64(len(raw)),
		Platform:    &oci.Platform{OS: "linux", Architecture: r.Layer.Arch},
		Annotations: map[string]string{oci.AnnotationVariant: r.Layer.Variant}}
	if err := p.sign(ctx, raw); err != nil {
		return d, err
	}
	return d, p.describe(ctx, d, raw, r.Layer, suite)
}

// describe attaches the SBOM, and with an attestation key the signed provenance,
// which names the SBOM by digest.
func (p publisher) describe(ctx context.Context, d oci.Descriptor, raw []byte, l spec.Layer, suite string) error {
	spdx, err := sbom.SPDX(l, suite)
	if err != nil {
		return err
	}
	list, err := p.reg.Referrers(ctx, oci.RepoLayer, d.Digest)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(r oci.Descriptor) bool { return r.ArtifactType == sbom.MediaTypeSPDX }) {
		if _, err := p.reg.Attach(ctx, oci.RepoLayer, d, sbom.MediaTypeSPDX, sbom.MediaTypeSPDX, spdx, nil); err != nil {
			return fmt.Errorf("attach the SBOM: %w", err)
		}
	}
	attested := slices.ContainsFunc(list, func(r oci.Descriptor) bool {
		return predicateOf(ctx, p.reg, r) == sign.PredicateProvenance
	})
	if p.keys.attest == nil || attested {
		return nil
	}
	provenance, err := sbom.Provenance(l, suite, oci.Digest(spdx), version)
	if err != nil {
		return err
	}
	bundle, err := sign.Attest(p.keys.attest, d.Digest, sign.PredicateProvenance, provenance)
	if err != nil {
		return err
	}
	if err := publish.AttachBundle(ctx, p.reg, raw, bundle, sign.PredicateProvenance, now()); err != nil {
		return fmt.Errorf("attach the provenance: %w", err)
	}
	return nil
}

// predicateOf reads what a referrer says it is about, which registries do not
// tell in their lists.
func predicateOf(ctx context.Context, reg *registry.Registry, d oci.Descriptor) string {
	raw, _, err := reg.Manifest(ctx, oci.RepoLayer, d.Digest)
	if err != nil {
		return ""
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		return ""
	}
	return m.Annotations["dev.sigstore.bundle.predicateType"]
}

// sign attaches the release key's signature unless it is there already: the
// same layer built again is the same layer.
func (p publisher) sign(ctx context.Context, raw []byte) error {
	if p.keys.release == nil {
		return nil
	}
	if publish.Released(ctx, p.reg, oci.Digest(raw), []*ecdsa.PublicKey{&p.keys.release.PublicKey}) == nil {
		return nil
	}
	if err := publish.Release(ctx, p.reg, raw, p.keys.release, now()); err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	return nil
}

// index pushes the list of variants under the version's tag and "current".
func (p publisher) index(ctx context.Context, entries []oci.Descriptor, version string) (string, error) {
	if !oci.ValidTag(version) {
		return "", fmt.Errorf("version %q cannot be a tag", version)
	}
	raw := oci.Encode(oci.Index{SchemaVersion: 2, MediaType: oci.MediaTypeIndex, ArtifactType: oci.TypeLayer, Manifests: entries})
	digest, err := p.reg.PutManifest(ctx, oci.RepoLayer, oci.MediaTypeIndex, raw, version, "current")
	if err != nil {
		return "", fmt.Errorf("push the index: %w", err)
	}
	return digest, nil
}

// currentAccounts reads the account ledgers of the layers that are current.
// Where nothing was ever built there are none.
func currentAccounts(ctx context.Context, reg *registry.Registry) ([]spec.Account, error) {
	raw, _, err := reg.Manifest(ctx, oci.RepoLayer, "current")
	if errors.Is(err, oci.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the current layers: %w", err)
	}
	index, err := oci.ParseIndex(raw)
	if err != nil {
		return nil, fmt.Errorf("read the current layers: %w", err)
	}
	var all []spec.Account
	for _, d := range index.Manifests {
		l, _, err := readLayer(ctx, reg, d.Digest)
		if err != nil {
			return nil, fmt.Errorf("read the current layers: %w", err)
		}
		all = append(all, l.Accounts...)
	}
	return all, nil
}

// readLayer reads a layer's description and manifest.
func readLayer(ctx context.Context, reg *registry.Registry, digest string) (spec.Layer, *oci.Manifest, error) {
	var l spec.Layer
	raw, _, err := reg.Manifest(ctx, oci.RepoLayer, digest)
	if err != nil {
		return l, nil, err
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		return l, nil, err
	}
	if m.ArtifactType != oci.TypeLayer {
		return l, nil, fmt.Errorf("%s is %q, not a system layer", digest, m.ArtifactType)
	}
	config, err := oci.ReadBlob(ctx, reg.Source(), oci.RepoLayer, m.Config, oci.MaxConfig)
	if err != nil {
		return l, nil, err
	}
	return l, m, spec.Decode(config, &l)
}
