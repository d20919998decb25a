// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/builder/sbom"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// describe attaches the SBOM, and with an attestation key the signed provenance,
// which names the SBOM by digest.
func (p *Pusher) describe(ctx context.Context, d oci.Descriptor, raw []byte, l spec.Layer, suite string) error {
	spdx, err := sbom.SPDX(l, suite)
	if err != nil {
		return err
	}
	list, err := p.Registry.Referrers(ctx, oci.RepoLayer, d.Digest)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(r oci.Descriptor) bool { return r.ArtifactType == sbom.MediaTypeSPDX }) {
		if _, err := p.Registry.Attach(ctx, oci.RepoLayer, d, sbom.MediaTypeSPDX, sbom.MediaTypeSPDX, spdx, nil); err != nil {
			return fmt.Errorf("attach the SBOM: %w", err)
		}
	}
	attested := slices.ContainsFunc(list, func(r oci.Descriptor) bool {
		return predicateOf(ctx, p.Registry, r) == sign.PredicateProvenance
	})
	if p.Attest == nil || attested {
		return nil
	}
	provenance, err := sbom.Provenance(l, suite, oci.Digest(spdx), p.Tool)
	if err != nil {
		return err
	}
	bundle, err := sign.Attest(p.Attest, d.Digest, sign.PredicateProvenance, provenance)
	if err != nil {
		return err
	}
	if err := Attach(ctx, p.Registry, raw, bundle, sign.PredicateProvenance, p.Now); err != nil {
		return fmt.Errorf("attach the provenance: %w", err)
	}
	return nil
}
