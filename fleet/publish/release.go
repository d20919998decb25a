// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
)

// Release signs a layer's manifest, in the form of cosign sign, and attaches the
// signature. `caisson build` calls it.
func Release(ctx context.Context, r *registry.Registry, manifest []byte, signer crypto.Signer, now time.Time) error {
	bundle, err := sign.SignArtifact(signer, oci.Digest(manifest))
	if err != nil {
		return err
	}
	return AttachBundle(ctx, r, manifest, bundle, sign.PredicateCosign, now)
}

// AttachBundle attaches a signature or an attestation to a layer's manifest, with
// the annotations that cosign writes.
func AttachBundle(ctx context.Context, r *registry.Registry, manifest, bundle []byte, predicateType string, now time.Time) error {
	_, err := r.Attach(ctx, oci.RepoLayer, oci.Describe(oci.MediaTypeManifest, manifest), oci.TypeBundle, oci.TypeBundle, bundle, map[string]string{
		"dev.sigstore.bundle.content":       "dsse-envelope",
		"dev.sigstore.bundle.predicateType": predicateType,
		"org.opencontainers.image.created":  now.UTC().Format(time.RFC3339),
	})
	return err
}
