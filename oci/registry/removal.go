// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/caisson-os/caisson/oci"
)

// Removal removes from a registry and notes what stays all the same: some registries have
// no DELETE, or tags that cannot be changed.
type Removal struct {
	From  *Registry
	Stays []string // as "repository:tag" or "repository@digest"
	gone  int
}

// Untag is [Registry.Untag]. A tag that stays is not an error, whatever it leads to.
func (m *Removal) Untag(ctx context.Context, repo, tag string) error {
	return m.look(ctx, repo, ":", tag, m.From.Untag(ctx, repo, tag))
}

// Delete deletes a manifest. One that stays, or is not there, is not an error.
func (m *Removal) Delete(ctx context.Context, repo, digest string) error {
	return m.look(ctx, repo, "@", digest, m.From.Delete(ctx, repo, digest))
}

// look looks whether something is still there: a registry may answer 404 to each DELETE.
func (m *Removal) look(ctx context.Context, repo, mark, reference string, err error) error {
	if err != nil && !isRefused(err) { // of these credentials, or for now
		return fmt.Errorf("remove %s%s%s: %w; %d removed before it are gone, all else stays, and removing again goes on there",
			repo, mark, reference, err, m.gone)
	}
	if m.From.Ref().IsLayout() { // what nothing names is there until it is swept
		return nil
	}
	switch _, _, err := m.From.Manifest(ctx, repo, reference); {
	case err == nil:
		m.Stays = append(m.Stays, repo+mark+reference)
	case !errors.Is(err, oci.ErrNotFound):
		return err
	default:
		m.gone++
	}
	return nil
}

// isRefused reports whether a registry does not do what it was asked, for any client.
func isRefused(err error) bool {
	var status *transport.Error
	if !errors.As(err, &status) {
		return errors.Is(err, oci.ErrNotFound)
	}
	switch status.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return false
	}
	return status.StatusCode < 500 || status.StatusCode == http.StatusNotImplemented
}

// Untag removes a tag and nothing else: what it led to stays under its digest and
// its other tags. A tag that is not there is not an error.
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
