// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec/refusal"
)

// server is a registry reached over HTTP, written through go-containerregistry.
type server struct {
	ref    oci.Ref
	pusher *remote.Pusher
	puller *remote.Puller
	scheme []name.Option
	lists  *listCaps

	transport http.RoundTripper
	plain     bool
	agent     string
	empty     sync.Map // repositories that have the empty configuration, which all manifests share
}

func openServer(ref oci.Ref, o Options) (*server, error) {
	tripper, err := transportTo(ref.Host, o)
	if err != nil {
		return nil, err
	}
	s := &server{ref: ref, lists: tripper.lists, transport: tripper, plain: o.PlainHTTP, agent: o.UserAgent}
	options := []remote.Option{
		remote.WithAuth(authn.Anonymous), // the transport logs in
		remote.WithTransport(tripper),
		remote.WithUserAgent(o.UserAgent),
	}
	if o.PlainHTTP {
		s.scheme = []name.Option{name.Insecure}
	}
	if s.pusher, err = remote.NewPusher(options...); err != nil {
		return nil, err
	}
	s.puller, err = remote.NewPuller(options...)
	return s, err
}

// Transport returns the transport for go-containerregistry to the registry at
// host[:port]: it logs in there and nowhere else, and keeps to the scheme.
func Transport(host string, o Options) (http.RoundTripper, error) { return transportTo(host, o) }

func transportTo(host string, o Options) (oneScheme, error) {
	base, err := o.Transport(host)
	return oneScheme{base, host, o.PlainHTTP, cmp.Or(o.Patience, 2*time.Minute), newListCaps()}, err
}

// oneScheme keeps the library from guessing: it would speak plain HTTP to
// private addresses, whatever was asked for. It also bounds
// what that reads.
type oneScheme struct {
	base  http.RoundTripper
	host  string
	plain bool

	patience time.Duration
	lists    *listCaps
}

func (t oneScheme) RoundTrip(req *http.Request) (*http.Response, error) {
	if own := scheme(t.plain); req.URL.Host == t.host && req.URL.Scheme != own {
		req = req.Clone(req.Context())
		req.URL.Scheme = own
	}
	resp, err := t.base.RoundTrip(req)
	if err == nil {
		bound(resp, t.patience, t.lists.page)
	}
	return resp, err
}

func scheme(insecure bool) string {
	if insecure {
		return "http"
	}
	return "https"
}

func (s *server) repository(repo string) (name.Repository, error) {
	return name.NewRepository(s.ref.Host+"/"+s.ref.Repo(repo), s.scheme...)
}

func (s *server) reference(repo, reference string) (name.Reference, error) {
	r, err := s.repository(repo)
	if err != nil {
		return nil, err
	}
	if oci.ValidDigest(reference) {
		return r.Digest(reference), nil
	}
	if !oci.ValidTag(reference) {
		return nil, fmt.Errorf("tag or digest %.80q is not valid", reference)
	}
	return r.Tag(reference), nil
}

func (s *server) blobSize(ctx context.Context, repo, digest string) (int64, error) {
	r, err := s.repository(repo)
	if err != nil {
		return 0, err
	}
	layer, err := s.puller.Layer(ctx, r.Digest(digest))
	if err != nil {
		return 0, err
	}
	size, err := layer.Size()
	return size, explain(err)
}

func (s *server) putBlob(ctx context.Context, repo string, d oci.Descriptor, open Opener) error {
	r, err := s.repository(repo)
	if err != nil {
		return err
	}
	hash, err := v1.NewHash(d.Digest)
	if err != nil {
		return err
	}
	if err := s.pusher.Upload(ctx, r, blob{hash, d, open}); err != nil {
		return fmt.Errorf("push %s: %w", d.Digest, explain(err))
	}
	return nil
}

func (s *server) putManifest(ctx context.Context, repo string, d oci.Descriptor, tag string) error {
	ref, err := s.reference(repo, cmp.Or(tag, d.Digest))
	if err != nil {
		return err
	}
	for wait := range unknownTries {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(wait) * 300 * time.Millisecond):
		}
		if err = s.pusher.Put(ctx, ref, rawManifest{d.Data, types.MediaType(d.MediaType)}); err == nil {
			return nil
		}
		if !isBlobUnknown(err) {
			break
		}
	}
	return fmt.Errorf("push %s: %w", ref, explain(err))
}

// unknownTries is how often a manifest is put whose blobs the registry says not to
// know. All of them are there by then, but docker-registry 2.8 loses sight of one for a
// moment while another client brings it too, as the empty configuration of all manifests.
const unknownTries = 5

func isBlobUnknown(err error) bool {
	var status *transport.Error
	return errors.As(err, &status) && slices.ContainsFunc(status.Errors, func(d transport.Diagnostic) bool {
		return d.Code == transport.ManifestBlobUnknownErrorCode
	})
}

func (s *server) delete(ctx context.Context, repo, reference string) error {
	ref, err := s.reference(repo, reference)
	if err != nil {
		return err
	}
	return explain(s.pusher.Delete(ctx, ref))
}

func (s *server) referrers(ctx context.Context, repo, digest string) ([]oci.Descriptor, error) {
	r, err := s.repository(repo)
	if err != nil {
		return nil, err
	}
	index, err := remote.Referrers(r.Digest(digest), remote.Reuse(s.puller), remote.WithContext(ctx))
	if err != nil {
		return nil, explain(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	return plain.Each(m.Manifests, func(d v1.Descriptor) oci.Descriptor {
		return oci.Descriptor{MediaType: string(d.MediaType), Digest: d.Digest.String(), Size: d.Size,
			ArtifactType: d.ArtifactType, Annotations: d.Annotations}
	}), nil
}

// explain turns the library's 404 into ours.
func explain(err error) error {
	var status *transport.Error
	if !errors.As(err, &status) {
		return err
	}
	switch status.StatusCode {
	case http.StatusNotFound:
		return fmt.Errorf("%w: %w", oci.ErrNotFound, err)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: %w", &pull.StatusError{Status: status.StatusCode, What: "push"}, err)
	}
	return err
}

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
