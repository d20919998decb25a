// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
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
