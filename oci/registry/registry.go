// SPDX-License-Identifier: Apache-2.0

// Package registry writes caisson's artifacts: to a registry server, or to a
// directory in the OCI image layout, which [Handler] serves like a registry. A
// [Transfer] copies them from one to another.
//
// It is the big half of registry access, for the builder's machine. Pushing uses
// go-containerregistry; reading goes through oci/pull, by the same rules as
// on a node. The layout is written here, because a cut must leave the old or the
// new index and never a truncated blob under a good name: blobs first, fsync,
// then index.json by one rename. A tag is a descriptor whose ref.name is
// "repository:tag"; a referrer is a descriptor without a name.
//
// The package does not know what it stores: what may be copied, and in which order
// nodes must find it, is for its callers. What builds and publishes imports it,
// never the agent: a list of the agent's packages is held by a test.
package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Options say how a registry is reached; a layout needs none.
type Options = pull.Options

// Opener gives a blob's content from its start, as often as it is asked.
type Opener = func() (io.ReadCloser, error)

// Registry is an open place for artifacts. Repositories are named without
// prefix: "layer", "node", "fleet". It may be used by several goroutines.
type Registry struct {
	ref    oci.Ref
	place  place
	source oci.Source
	attach sync.Mutex   // see Attach
	may    func() error // asked before each write; nil permits all
}

// place holds the methods that differ between a server and a layout.
type place interface {
	blobs
	manifests
}

// blobs are content by digest.
type blobs interface {
	putBlob(ctx context.Context, repo string, d oci.Descriptor, open Opener) error
	putData(ctx context.Context, repo string, d oci.Descriptor) error // d has its data
	blobSize(ctx context.Context, repo, digest string) (int64, error)
}

// manifests keeps the manifests that tags name and referrers are attached to.
type manifests interface {
	putManifest(ctx context.Context, repo string, d oci.Descriptor, tag string) error // d has its data
	tags(ctx context.Context, repo string) ([]string, error)
	delete(ctx context.Context, repo, reference string) error
	referrers(ctx context.Context, repo, digest string) ([]oci.Descriptor, error)
}

// again is how often a server that answers 5xx is asked again: an operator's verb that
// reads a hundred manifests is not to end because of one of these. Writes are sent again
// by their library.
const again = 4

// Open opens "host[:port]/prefix" or "oci:DIR". Where no layout is,
// the first write makes one.
func Open(ref string, o Options) (*Registry, error) {
	parsed, err := oci.ParseRef(ref)
	if err != nil {
		return nil, err
	}
	r := &Registry{ref: parsed}
	if parsed.IsLayout() {
		l, err := openLayout(parsed.Layout)
		if err != nil {
			return nil, err
		}
		r.place = l
		if len(o.Mirrors) == 0 && l.absent() {
			r.source = within{&unmade{layout: l}, l}
			return r, nil
		}
	} else {
		r.place, err = openServer(parsed, o)
	}
	if err != nil {
		return nil, err
	}
	o.Again = cmp.Or(o.Again, again)
	r.source, err = pull.Open(parsed, o)
	if l, ok := r.place.(*layout); ok && len(o.Mirrors) == 0 {
		r.source = within{r.source, l}
	}
	return r, err
}

// Ref returns the reference that was opened.
func (r *Registry) Ref() oci.Ref { return r.ref }

// Source reads from the same place the way a node does.
func (r *Registry) Source() oci.Source { return r.source }

// While returns the same place for a writer that asks may before each write: its
// error is the write's, and nothing is sent. What was sent before goes on.
func (r *Registry) While(may func() error) *Registry {
	return &Registry{ref: r.ref, place: r.place, source: r.source, may: may}
}

func (r *Registry) permitted() error {
	if r.may == nil {
		return nil
	}
	return r.may()
}

// HasBlob says whether a blob is there.
func (r *Registry) HasBlob(ctx context.Context, repo string, d oci.Descriptor) (bool, error) {
	return hasBlob(ctx, r.place, repo, d)
}

func hasBlob(ctx context.Context, in blobs, repo string, d oci.Descriptor) (bool, error) {
	if !oci.ValidDigest(d.Digest) {
		return false, fmt.Errorf("digest %.80q is not valid", d.Digest)
	}
	size, err := in.blobSize(ctx, repo, d.Digest)
	if errors.Is(err, oci.ErrNotFound) {
		return false, nil
	}
	return err == nil && size == d.Size, err
}

// PutBlob stores a blob unless it is there. Content that is not d is refused.
func (r *Registry) PutBlob(ctx context.Context, repo string, d oci.Descriptor, open Opener) error {
	if err := r.permitted(); err != nil {
		return err
	}
	return r.place.putBlob(ctx, repo, d, open)
}

// PutData stores a blob whose content is the descriptor's own data.
func (r *Registry) PutData(ctx context.Context, repo string, d oci.Descriptor) error {
	if err := d.Verify(d.Data); err != nil {
		return err
	}
	if err := r.permitted(); err != nil {
		return err
	}
	return r.place.putData(ctx, repo, d)
}

// PutManifest stores a manifest or an index, whose blobs are there, and points
// the tags at it. It returns the digest.
func (r *Registry) PutManifest(ctx context.Context, repo, mediaType string, raw []byte, tags ...string) (string, error) {
	d := oci.Describe(mediaType, raw)
	if len(tags) == 0 {
		tags = []string{""}
	}
	for _, tag := range tags {
		if err := r.permitted(); err != nil {
			return "", err
		}
		if err := r.place.putManifest(ctx, repo, d, tag); err != nil {
			return "", err
		}
	}
	return d.Digest, nil
}

// Manifest reads what a tag or digest names.
func (r *Registry) Manifest(ctx context.Context, repo, reference string) (raw []byte, mediaType string, err error) {
	resp, err := r.source.Manifest(ctx, repo, reference, "")
	return resp.Data, resp.MediaType, err
}

// Tags lists a repository's tags, sorted.
func (r *Registry) Tags(ctx context.Context, repo string) ([]string, error) {
	return r.place.tags(ctx, repo)
}

// Delete removes a tag, or a manifest with its tags.
func (r *Registry) Delete(ctx context.Context, repo, reference string) error {
	if err := r.permitted(); err != nil {
		return err
	}
	return r.place.delete(ctx, repo, reference)
}

// Referrers lists what is attached to a manifest. Annotations and artifact types
// come unchecked from the registry; read the manifests before you rely on them.
func (r *Registry) Referrers(ctx context.Context, repo, digest string) ([]oci.Descriptor, error) {
	return r.place.referrers(ctx, repo, digest)
}

// Date returns the registry's time, as the Date header of its answer says. It is
// not signed. A layout has none, nor has a server that does not send it: ok is
// false.
func (r *Registry) Date(ctx context.Context) (date time.Time, ok bool) {
	s, server := r.place.(*server)
	if !server {
		return date, false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme(s.plain)+"://"+s.ref.Host+"/v2/", nil)
	if err != nil {
		return date, false
	}
	resp, err := s.transport.RoundTrip(q) // any status has the header, 401 too
	if err != nil {
		return date, false
	}
	defer resp.Body.Close() // only its header matters
	date, err = http.ParseTime(resp.Header.Get("Date"))
	return date, err == nil
}

// bound limits the answers that the library reads to their end: manifests, lists of
// what is attached to one, and of tags. They are whole within patience; a page of
// tags is not longer than its cap, the library caps the others itself.
func bound(resp *http.Response, patience time.Duration, page int64) {
	path := resp.Request.URL.Path
	tags := strings.HasSuffix(path, "/tags/list")
	if !tags && !strings.Contains(path, "/manifests/") && !strings.Contains(path, "/referrers/") {
		return
	}
	b := &bounded{ReadCloser: resp.Body, most: 1 << 62}
	if tags {
		b.most = page
	}
	b.timer = time.AfterFunc(patience, func() {
		b.late.Store(true)
		_ = b.ReadCloser.Close() // ends the read that waits
	})
	resp.Body = b
}

type bounded struct {
	io.ReadCloser
	read  int64
	most  int64
	timer *time.Timer
	late  atomic.Bool
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	switch {
	case b.read > b.most:
		_ = b.Close() // the library leaves open what it could not decode
		return 0, refusal.New(refusal.Oversize, "a page of a list of tags has more than %d bytes", b.most)
	case b.late.Load():
		return n, pull.ErrSlow
	}
	return n, err
}

func (b *bounded) Close() error {
	b.timer.Stop()
	return b.ReadCloser.Close()
}

// listCaps bound a repository's list of tags, which a server gives in pages.
type listCaps struct {
	tags, pages int
	page        int64 // bytes
}

// newListCaps are those of an open registry. A fleet of 100,000 nodes with two cards each
// has 400,000 tags.
func newListCaps() *listCaps { return &listCaps{tags: 1 << 20, pages: 1 << 14, page: 64 << 20} }

func (s *server) tags(ctx context.Context, repo string) ([]string, error) {
	r, err := s.repository(repo)
	if err != nil {
		return nil, err
	}
	lister, err := s.puller.Lister(ctx, r)
	if err = explain(err); errors.Is(err, oci.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []string
	for pages := 0; lister.HasNext(); pages++ {
		page, err := lister.Next(ctx)
		if err != nil {
			return nil, explain(err)
		}
		list = append(list, page.Tags...)
		if len(list) > s.lists.tags || pages > s.lists.pages {
			return nil, refusal.New(refusal.Oversize, "the list of tags of %s does not end: %d in %d pages", repo, len(list), pages+1)
		}
	}
	slices.Sort(list)
	// What is not a tag can be neither asked for nor shown to a terminal or a shell.
	return slices.DeleteFunc(list, func(tag string) bool { return !oci.ValidTag(tag) }), nil
}
