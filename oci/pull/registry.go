// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/internal/strict"
)

// registry reads from a registry by the OCI distribution protocol.
type registry struct {
	base    string // scheme://host/v2/prefix/
	agent   string
	client  *http.Client
	resume  *http.Client // follows no redirect to another host
	options Options
	rules   registryRules
}

func openRegistry(ref oci.Ref, o Options, rules registryRules) (*registry, error) {
	transport, err := o.Transport(ref.Host)
	if err != nil {
		return nil, err
	}
	return &registry{
		base:    o.scheme() + "://" + ref.Host + "/v2/" + ref.Repo(""),
		agent:   o.UserAgent,
		client:  &http.Client{Transport: transport, CheckRedirect: redirectPolicy(rules.redirect, false)},
		resume:  &http.Client{Transport: transport, CheckRedirect: redirectPolicy(rules.redirect, true)},
		options: o,
		rules:   rules,
	}, nil
}

func (r *registry) Manifest(ctx context.Context, repo, reference, etag string) (oci.Response, error) {
	if err := oci.CheckName(repo, reference); err != nil {
		return oci.Response{}, err
	}
	header := http.Header{"Accept": {oci.MediaTypeManifest + ", " + oci.MediaTypeIndex}}
	if etag != "" {
		header.Set("If-None-Match", quoted(etag))
	}
	resp, err := r.get(ctx, question{r.client, repo + "/manifests/" + reference, header, r.options.patience()})
	if err != nil {
		return oci.Response{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified && etag != "" {
		return oci.Response{ETag: etag, NotModified: true}, nil
	}
	if err := r.rules.manifest.Run(answer{Response: resp, what: reference}); err != nil {
		return oci.Response{}, err
	}
	raw, err := strict.ReadCapped(resp.Body, resp.ContentLength, oci.MaxManifest)
	if err != nil {
		return oci.Response{}, fmt.Errorf("read manifest %s:%s: %w", repo, reference, err)
	}
	if err := r.rules.body.Run(document{raw, reference}); err != nil {
		return oci.Response{}, err
	}
	return oci.Response{Data: raw, MediaType: resp.Header.Get("Content-Type"), Digest: oci.Digest(raw), ETag: resp.Header.Get("ETag")}, nil
}

func (r *registry) Blob(ctx context.Context, repo string, d oci.Descriptor, offset int64) (io.ReadCloser, error) {
	if !oci.ValidDigest(d.Digest) || oci.CheckName(repo, d.Digest) != nil {
		return nil, fmt.Errorf("blob %.80q of %.80q: the name is not valid", d.Digest, repo)
	}
	if offset < 0 || offset > d.Size {
		return nil, fmt.Errorf("blob %s has %d bytes, none at %d", d.Digest, d.Size, offset)
	}
	if offset == d.Size && d.Size > 0 {
		return io.NopCloser(strings.NewReader("")), nil
	}
	client := r.client
	if offset > 0 {
		client = r.resume
	}
	return r.part(ctx, client, repo, d, oci.Span{From: offset, To: d.Size})
}

// part asks for one part of a blob, or for all of it.
func (r *registry) part(ctx context.Context, client *http.Client, repo string, d oci.Descriptor, s oci.Span) (io.ReadCloser, error) {
	a, header := answer{what: d.Digest, Span: s, size: d.Size}, http.Header{}
	if a.partial() {
		// Some registries know no open range, so both ends are given.
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", s.From, s.To-1))
	}
	var err error
	if a.Response, err = r.get(ctx, question{client, repo + "/blobs/" + d.Digest, header, 0}); err != nil {
		return nil, err
	}
	if err := r.rules.blob.Run(a); err != nil {
		a.Body.Close()
		return nil, err
	}
	return limited{io.LimitReader(a.Body, s.To-s.From), a.Body}, nil
}

// quoted makes an ETag of a digest, which registries use as one. Other tags
// come from the server and have their quotes.
func quoted(etag string) string {
	if oci.ValidDigest(etag) {
		return `"` + etag + `"`
	}
	return etag
}

// question is one request for something below the registry's name.
type question struct {
	client *http.Client
	path   string
	header http.Header
	whole  time.Duration // for all of the answer; 0 has no such bound
}

// get asks once, and as often again as the options say while the registry answers that
// it could not.
func (r *registry) get(ctx context.Context, q question) (*http.Response, error) {
	for n := 0; ; n++ {
		resp, err := r.ask(ctx, q)
		if err != nil || n >= r.options.Again || !passing(resp.StatusCode) {
			return resp, err
		}
		drain(resp)
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(firstPause << n):
		}
	}
}

// firstPause is how long a registry has before it is asked again. Each further pause is
// twice as long.
const firstPause = 100 * time.Millisecond

// passing reports whether a status is of a server that may answer otherwise in a moment.
// docker-registry 2.8 answers 500 for a tag that another client is just putting again.
func passing(status int) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func (r *registry) ask(ctx context.Context, q question) (*http.Response, error) {
	ctx, watch := newWatch(ctx, r.options, q.whole)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+q.path, nil)
	if err != nil {
		return nil, watch.explain(err)
	}
	req.Header = q.header
	if r.agent != "" {
		req.Header.Set("User-Agent", r.agent)
	}
	resp, err := q.client.Do(req)
	if err != nil {
		return nil, watch.explain(err)
	}
	resp.Body = watch.body(resp.Body)
	return resp, nil
}

// drain reads a little of a body so that the connection can be used again.
func drain(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // only a kindness to the connection
	_ = resp.Body.Close()                          // its body is not used
}
