// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"

	"github.com/caisson-os/caisson/oci"
)

// Untag removes a tag and nothing else: what it led to stays under its digest and
// its other tags. A tag that is not there is no error.
//
// Some registries delete by digest only, which would take the other tags along.
// There the tag is moved to an empty artifact of its own, and that is deleted. One
// that deletes nothing keeps the tag, and the tag leads to the empty artifact.
func (r *Registry) Untag(ctx context.Context, repo, tag string) error {
	err := r.Delete(ctx, repo, tag)
	if err == nil || errors.Is(err, oci.ErrNotFound) || ctx.Err() != nil {
		return ctx.Err()
	}
	if _, _, err := r.Manifest(ctx, repo, tag); errors.Is(err, oci.ErrNotFound) {
		return nil
	}
	empty := oci.Describe(oci.MediaTypeEmpty, oci.Empty)
	if err := r.PutData(ctx, repo, empty); err != nil {
		return err
	}
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeGone,
		Config: empty.Bare(), Layers: []oci.Descriptor{}, Annotations: map[string]string{oci.AnnotationGone: tag}})
	digest, err := r.PutManifest(ctx, repo, oci.MediaTypeManifest, raw, tag)
	if err != nil {
		return err
	}
	_ = r.Delete(ctx, repo, digest) // where nothing is deleted, the empty artifact does as well
	return nil
}
