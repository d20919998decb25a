// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec/refusal"
)

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
