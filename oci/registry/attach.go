// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/oci"
)

// Attach stores a blob as a referrer of a manifest, in the form that cosign
// writes, and returns the referrer's digest.
//
// On registries without the referrers API a tag holds the list, which is read,
// changed and written back: parallel writers lose entries. So one Registry
// attaches one after the other, looks whether the entry stayed, and tries again.
func (r *Registry) Attach(ctx context.Context, repo string, subject oci.Descriptor, artifactType, blobMediaType string, blob []byte, annotations map[string]string) (string, error) {
	r.attach.Lock()
	defer r.attach.Unlock()
	subject = oci.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size}
	m := oci.Manifest{
		SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: artifactType,
		Config:      oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(),
		Layers:      []oci.Descriptor{oci.Describe(blobMediaType, blob).Bare()},
		Subject:     &subject,
		Annotations: annotations,
	}
	for _, d := range []oci.Descriptor{oci.Describe(oci.MediaTypeEmpty, oci.Empty), oci.Describe(blobMediaType, blob)} {
		if err := r.PutData(ctx, repo, d); err != nil {
			return "", err
		}
	}
	raw := oci.Encode(m)
	for range 5 {
		digest, err := r.PutManifest(ctx, repo, oci.MediaTypeManifest, raw)
		if err != nil {
			return "", err
		}
		list, err := r.Referrers(ctx, repo, subject.Digest)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(list, func(d oci.Descriptor) bool { return d.Digest == digest }) {
			return digest, nil
		}
	}
	return "", fmt.Errorf("attach to %s: the registry does not keep the entry in its list of referrers", subject.Digest)
}
