// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Blob reads a blob whose size need not be known. The reader fails at the end
// when the content is not what the digest says.
func (r *Registry) Blob(ctx context.Context, repo, digest string) (io.ReadCloser, int64, error) {
	size, err := r.size(ctx, repo, digest)
	if err != nil {
		return nil, 0, err
	}
	body, err := r.source.Blob(ctx, repo, oci.Descriptor{Digest: digest, Size: size}, 0)
	if err != nil {
		return nil, 0, err
	}
	return &verified{body: body, hash: sha256.New(), want: digest, left: size}, size, nil
}

func (r *Registry) size(ctx context.Context, repo, digest string) (int64, error) {
	if !oci.ValidDigest(digest) {
		return 0, fmt.Errorf("digest %.80q is not valid", digest)
	}
	return r.place.blobSize(ctx, repo, digest)
}

// verified hashes what passes and gives the verdict in place of io.EOF.
type verified struct {
	body io.ReadCloser
	hash hash.Hash
	want string
	left int64
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.body.Read(p)
	v.hash.Write(p[:n])
	v.left -= int64(n)
	if err != io.EOF {
		return n, err
	}
	if v.left != 0 {
		return n, refusal.New(refusal.Size, "%s lacks %d bytes", v.want, v.left)
	}
	if got := digests.From(v.hash); got != v.want {
		return n, refusal.New(refusal.Digest, "content of %s is %s", v.want, got)
	}
	return n, io.EOF
}

func (v *verified) Close() error { return v.body.Close() }
