// SPDX-License-Identifier: Apache-2.0

package content

import (
	"context"
	"slices"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/service"
)

// looked is how many nodes of a service are asked for what was published of it.
const looked = 16

// Verify makes the image of each row again whose commit has to be signed, from that commit, and
// wants it to be the one that the lock names: somebody who may write the lock and push to the registry
// has no image of his own signed. A row that some node was published with is as it was signed, and
// git is not asked. published returns a node's overlay, nil where there is none.
func (c *Source) Verify(ctx context.Context, s *site.Site, published func(ctx context.Context, node string) (*spec.Overlay, error)) error {
	services := s.Services()
	for i := range services {
		v := &services[i]
		l, ok := s.Locked(v.Name)
		if v.Git.AllowedSigners == "" || !ok || l.Stale(v) != "" {
			continue // a node that has it cannot be compiled
		}
		known, err := isPublished(ctx, s, v, l, published)
		if err == nil && !known {
			_, err = c.again(ctx, v, l)
		}
		if err != nil {
			return ofService(v.Name, err)
		}
	}
	return nil
}

// isPublished reports whether one of the first nodes that have a service was given a row of it.
func isPublished(ctx context.Context, s *site.Site, v *service.Service, l service.Locked, published func(context.Context, string) (*spec.Overlay, error)) (bool, error) {
	asked := 0
	for _, n := range s.Nodes() {
		if !v.Has(n) {
			continue
		}
		if asked++; asked > looked {
			break
		}
		o, err := published(ctx, n.Name)
		if err != nil {
			return false, err
		}
		if o == nil {
			continue
		}
		if slices.ContainsFunc(o.Services, func(p spec.Service) bool {
			return p.Name == v.Name && p.Commit == l.Commit && p.Image == l.Image && slices.Equal((&service.Service{Service: p}).From(), l.From)
		}) {
			return true, nil
		}
	}
	return false, nil
}
