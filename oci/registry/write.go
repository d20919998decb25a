// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

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
	if got := digest.From(h); got != d.Digest {
		return refusal.New(refusal.Digest, "content of %s is %s", d.Digest, got)
	}
	return nil
}

// writeUnsynced is durable.Write without its fsyncs: the batch's flush makes up
// for them before anything names the file.
func writeUnsynced(name string, fill func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".tmp.*")
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
		err = os.Rename(f.Name(), name)
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
