// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"slices"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Caps of a repository's list of tags, which a server gives in pages. A fleet of
// 100,000 nodes with two cards each has 400,000.
const (
	maxTags  = 1 << 20
	maxPages = 1 << 14
	maxPage  = 64 << 20 // bytes
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
