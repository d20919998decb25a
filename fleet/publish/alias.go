// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// dropReplaced removes the tags of machines that nodes are not bound to any more: a
// machine that was replaced would else still find the overlay, and be refused.
func (r *run) dropReplaced(ctx context.Context) {
	todo := r.c.todo
	used := map[string]bool{}
	for _, w := range todo {
		for _, tag := range trust.AliasTags(w.match.MACs, w.match.UUIDs) {
			used[tag] = true
		}
	}
	for _, w := range todo {
		if w.was != nil {
			r.dropAliases(ctx, w.name, w.was.Match, used)
		}
	}
}

// dropAliases removes the tags of a node's machines, but for those in use. A tag
// that another node took over at some time stays.
func (r *run) dropAliases(ctx context.Context, node string, was spec.Match, used map[string]bool) {
	for _, tag := range trust.AliasTags(was.MACs, was.UUIDs) {
		if used[tag] || !isTagOf(ctx, r.p.Registry, tag, node) {
			continue
		}
		if err := r.p.Registry.Untag(ctx, oci.RepoNode, tag); err != nil {
			r.Say("node:%s, which node %s had before, could not be removed: %v", tag, node, err)
		}
	}
}

// isTagOf reports whether a tag leads to an overlay of a node. Nothing is verified:
// whoever can alter what a tag leads to can remove the tag, too.
func isTagOf(ctx context.Context, in *registry.Registry, tag, node string) bool {
	src := in.Source()
	resp, err := src.Manifest(ctx, oci.RepoNode, tag, "")
	if err != nil {
		return false
	}
	doc, _, err := oci.ReadOverlay(ctx, src, oci.RepoNode, resp)
	if err != nil {
		return false
	}
	var o spec.Core
	_, err = spec.DecodeKnown(doc, &o)
	return err == nil && o.Node == node
}
