// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Blob reads a blob whose size need not be known. The reader fails at the end
// when the content is not what the digest says.
func (r *Registry) Blob(ctx context.Context, repo, digest string) (io.ReadCloser, int64, error) {
	if !oci.ValidDigest(digest) {
		return nil, 0, fmt.Errorf("digest %.80q is not valid", digest)
	}
	size, err := r.place.blobSize(ctx, repo, digest)
	if err != nil {
		return nil, 0, err
	}
	body, err := r.source.Blob(ctx, repo, oci.Descriptor{Digest: digest, Size: size}, 0)
	if err != nil {
		return nil, 0, err
	}
	return &verified{body: body, hash: sha256.New(), want: digest, left: size}, size, nil
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

// putData stores a blob that is in memory.
func (s *server) putData(ctx context.Context, repo string, d oci.Descriptor) error {
	empty := d.Digest == oci.Digest(oci.Empty)
	if _, there := s.empty.Load(repo); empty && there {
		return nil
	}
	err := s.putSmall(ctx, repo, d)
	if err != nil && ctx.Err() == nil {
		err = s.putBlob(ctx, repo, d, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(d.Data)), nil })
	}
	if err == nil && empty {
		s.empty.Store(repo, true)
	}
	return err
}

// putSmall stores a blob that is in memory by two requests: the library takes four,
// which is half of what publishing a large fleet takes. What does not go as expected
// is left to the library, which knows more ways and tries again.
func (s *server) putSmall(ctx context.Context, repo string, d oci.Descriptor) error {
	base := &url.URL{Scheme: scheme(s.plain), Host: s.ref.Host, Path: "/v2/" + s.ref.Repo(repo) + "/blobs/uploads/"}
	resp, err := s.send(ctx, http.MethodPost, base, nil)
	if err != nil {
		return err
	}
	at, err := base.Parse(resp.Header.Get("Location"))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusAccepted:
		return fmt.Errorf("begin an upload: %s", resp.Status)
	case at.Scheme != base.Scheme || at.Host != base.Host:
		return fmt.Errorf("the upload goes to %.80q", at.Host)
	}
	query := at.Query()
	query.Set("digest", d.Digest)
	at.RawQuery = query.Encode()
	if resp, err = s.send(ctx, http.MethodPut, at, d.Data); err == nil && resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("end an upload: %s", resp.Status)
	}
	return err
}

// send sends one request; of the answer, only its head is of interest.
func (s *server) send(ctx context.Context, method string, to *url.URL, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", s.agent)
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := s.transport.RoundTrip(req) // no redirect is followed
	if err != nil {
		return nil, err
	}
	_, err = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return resp, errors.Join(err, resp.Body.Close())
}
