// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

// copyVerified copies what d names and refuses anything else.
func copyVerified(ctx context.Context, w io.Writer, body io.Reader, d oci.Descriptor) error {
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, h), io.LimitReader(cancellable{ctx, body}, d.Size+1))
	if err != nil {
		return err
	}
	if n != d.Size {
		return refusal.New(refusal.Size, "%s has %d bytes or more where its descriptor says %d", d.Digest, n, d.Size)
	}
	got := digest.From(h)
	return refusal.If(got != d.Digest, refusal.Digest, "content of %s is %s", d.Digest, got)
}

// writeUnsynced is durable.Write without its fsyncs: the batch's flush makes up
// for them before anything names the file.
func (l *layout) writeUnsynced(name string, fill func(io.Writer) error) error {
	l.folder.Lock()
	f, err := os.CreateTemp(filepath.Dir(name), ".tmp.*")
	l.folder.Unlock()
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		l.folder.Lock()
		err = os.Rename(f.Name(), name)
		l.folder.Unlock()
	}
	if err != nil {
		_ = os.Remove(f.Name()) // err says what failed; prune removes what is left
	}
	return err
}

// cancellable stops a long copy between two reads.
type cancellable struct {
	ctx context.Context
	io.Reader
}

func (c cancellable) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.Reader.Read(p)
}

// Attachment is an artifact of one blob that is about another manifest.
type Attachment struct {
	Type        string         // of the artifact
	Blob        oci.Descriptor // with its data
	Annotations map[string]string
}

// Attach stores a blob as a referrer of a manifest, in the form that cosign
// writes, and returns the referrer's digest.
//
// On registries without the referrers API a tag holds the list, which is read,
// changed and written back: parallel writers lose entries. So one Registry
// attaches one after the other, looks whether the entry stayed, and tries again.
func (r *Registry) Attach(ctx context.Context, repo string, subject oci.Descriptor, a Attachment) (string, error) {
	r.attach.Lock()
	defer r.attach.Unlock()
	subject = oci.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size}
	m := oci.Manifest{
		SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: a.Type,
		Config:      oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(),
		Layers:      []oci.Descriptor{a.Blob.Bare()},
		Subject:     &subject,
		Annotations: a.Annotations,
	}
	for _, d := range []oci.Descriptor{oci.Describe(oci.MediaTypeEmpty, oci.Empty), a.Blob} {
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
