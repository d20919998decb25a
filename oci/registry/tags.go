// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"slices"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

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
