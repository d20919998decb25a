// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

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

// blob is our descriptor in the library's clothes.
type blob struct {
	hash v1.Hash
	d    oci.Descriptor
	open Opener
}

func (b blob) Digest() (v1.Hash, error)             { return b.hash, nil }
func (b blob) DiffID() (v1.Hash, error)             { return b.hash, nil }
func (b blob) Compressed() (io.ReadCloser, error)   { return b.open() }
func (b blob) Uncompressed() (io.ReadCloser, error) { return b.open() }
func (b blob) Size() (int64, error)                 { return b.d.Size, nil }
func (b blob) MediaType() (types.MediaType, error)  { return types.MediaType(b.d.MediaType), nil }

// rawManifest is pushed byte for byte.
type rawManifest struct {
	raw       []byte
	mediaType types.MediaType
}

func (m rawManifest) RawManifest() ([]byte, error)        { return m.raw, nil }
func (m rawManifest) MediaType() (types.MediaType, error) { return m.mediaType, nil }
