// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
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
		strict.Drain(resp)
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

// ErrSlow is returned where content arrives, but not fast enough to wait for.
var ErrSlow = errors.New("too slow")

// errSilence is returned where nothing arrives any more.
var errSilence = errors.New("the server sends no more data")

// Pace is the least that a download must bring: Bytes in each span of Per.
type Pace struct {
	Bytes int64
	Per   time.Duration
}

// DefaultPace is 1 KiB a second over a minute. At this rate an image takes days:
// what is slower is not a slow line but a fault, or meant to hold a node.
var DefaultPace = Pace{60 << 10, time.Minute}

func (p Pace) String() string { return fmt.Sprintf("less than %d bytes in %s", p.Bytes, p.Per) }

// watch ends a request when nothing arrives for a while, or too little. A deadline
// for the whole would punish large images on slow lines.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	quiet  time.Duration
	pace   Pace
	bytes  atomic.Int64
	stops  []func() bool
	silent *time.Timer
}

// newWatch returns a context for one request. whole, when not zero, is the longest
// that it may take with its answer.
func newWatch(ctx context.Context, o Options, whole time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{ctx: ctx, cancel: cancel, quiet: o.silence(), pace: o.pace()}
	w.silent = time.AfterFunc(w.quiet, func() { cancel(fmt.Errorf("%w for %s", errSilence, w.quiet)) })
	w.stops = append(w.stops, w.silent.Stop)
	if whole > 0 {
		late := time.AfterFunc(whole, func() { cancel(fmt.Errorf("%w: not whole after %s", ErrSlow, whole)) })
		w.stops = append(w.stops, late.Stop)
	}
	return ctx, w
}

// explain ends the watch and returns the reason for which it ended a request.
func (w *watch) explain(err error) error {
	err = w.reason(err)
	w.end()
	return err
}

func (w *watch) reason(err error) error {
	if cause := context.Cause(w.ctx); errors.Is(cause, errSilence) || errors.Is(cause, ErrSlow) {
		return cause
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return plainError{fmt.Errorf("%w: the registry speaks HTTP; a bootstrap allows that with --registry-plain-http", err)}
	}
	return err
}

// plainError is of a registry without TLS that was asked by TLS.
type plainError struct{ error }

func (e plainError) Unwrap() error { return e.error }
func (plainError) Hint() string    { return "--plain-http asks a registry without TLS" }

func (w *watch) end() {
	for _, stop := range w.stops {
		stop()
	}
	w.cancel(nil)
}

// body returns b, watched: from now on there is a least rate.
func (w *watch) body(b io.ReadCloser) io.ReadCloser {
	ticker := time.NewTicker(w.pace.Per)
	go func() {
		defer ticker.Stop()
		for before := int64(0); ; {
			select {
			case <-w.ctx.Done():
				return
			case <-ticker.C:
			}
			now := w.bytes.Load()
			if now-before < w.pace.Bytes {
				w.cancel(fmt.Errorf("%w: %s", ErrSlow, w.pace))
				return
			}
			before = now
		}
	}()
	return &watched{b, w}
}

type watched struct {
	io.ReadCloser
	w *watch
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.w.bytes.Add(int64(n))
		b.w.silent.Reset(b.w.quiet)
	}
	if err != nil && err != io.EOF {
		err = b.w.reason(err)
	}
	return n, err
}

func (b *watched) Close() error {
	err := b.ReadCloser.Close()
	b.w.end()
	return err
}
