// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/trust/refusal"
)

// Caps of a repository's list of tags, which a server gives in pages. A fleet of
// 100,000 nodes with two cards each has 400,000.
const (
	maxTags     = 1 << 20
	maxPages    = 1 << 14
	maxPageSize = 64 << 20 // bytes
)

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
		if len(list) > maxTags || pages > maxPages {
			return nil, refusal.New(refusal.Oversize, "the list of tags of %s does not end: %d in %d pages", repo, len(list), pages+1)
		}
	}
	slices.Sort(list)
	// What is not a tag can be neither asked for nor shown to a terminal or a shell.
	return slices.DeleteFunc(list, func(tag string) bool { return !oci.ValidTag(tag) }), nil
}

// capLists caps the pages of lists, which the library reads to their end.
func capLists(resp *http.Response) {
	if strings.HasSuffix(resp.Request.URL.Path, "/tags/list") {
		resp.Body = &page{resp.Body, maxPageSize}
	}
}

type page struct {
	io.ReadCloser
	left int
}

func (p *page) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if p.left -= n; p.left < 0 {
		return 0, refusal.New(refusal.Oversize, "a page of a list of tags has more than %d bytes", maxPageSize)
	}
	return n, err
}
