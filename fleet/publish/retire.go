// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// Retire ends nodes: their rows go, then their tags and those of their machines. A
// machine that asks finds nothing; what it runs goes on. Nodes that left the index
// with a publish are retired as well. Cut anywhere, it is done by doing it again: a
// node without a row keeps its name until all else of it is gone.
func (p *Publisher) Retire(ctx context.Context, names []string, by By) (*Result, error) {
	return p.Change(ctx, "retire", by, func(ctx context.Context, r *Run) error { return r.retire(ctx, names) })
}

func (r *Run) retire(ctx context.Context, names []string) error {
	var unknown error
	bound := map[string]spec.Match{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		row, listed, err := r.State.Index.Row(ctx, name)
		if err != nil {
			return err
		}
		if listed {
			r.Plan.Index.Remove(name)
			r.Plan.Rows, bound[name] = true, row.Match
			r.Result.Unchanged-- // of the rows before it
			continue
		}
		match, err := readLeft(ctx, r.Publisher.Registry, name)
		if errors.Is(err, oci.ErrNotFound) {
			unknown = cli.Hint("'caisson verify' lists them", "node %q is not published", name)
			r.Say("%v: nothing of it is left to retire", unknown)
			continue
		}
		if err != nil {
			return err
		}
		bound[name] = match
	}
	if len(bound) == 0 {
		return unknown
	}
	r.Result.Left = plain.Names(maps.Keys(bound))
	r.Plan.written = func() error {
		for _, name := range r.Result.Left {
			r.dropAliases(ctx, name, bound[name], nil)
			if err := r.Publisher.Registry.Untag(ctx, oci.RepoNode, name); err != nil {
				return fmt.Errorf("remove node:%s: %w", name, err)
			}
		}
		return r.batch.Flush()
	}
	return nil
}

// readLeft returns the machines of a node that has a tag and no row; [oci.ErrNotFound] where
// it has no tag, or one that a registry could not remove.
func readLeft(ctx context.Context, in *registry.Registry, name string) (match spec.Match, err error) {
	raw, _, err := in.Manifest(ctx, oci.RepoNode, name)
	if err != nil {
		return match, fmt.Errorf("node:%s: %w", name, err)
	}
	if m, err := oci.ParseManifest(raw); err == nil && m.ArtifactType == oci.TypeGone {
		return match, oci.ErrNotFound
	}
	c, err := trust.Overlay(ctx, in.Source(), []string{name}, "")
	if err != nil {
		return match, fmt.Errorf("node:%s: %w", name, err)
	}
	var o spec.Core
	if _, err := spec.DecodeKnown(c.Document, &o); err != nil || o.Node != name {
		return match, cli.Hint("remove the tag with the program that made it", "node:%s does not lead to an overlay of that node", name)
	}
	return o.Match, nil
}

// dropReplaced removes the tags of machines that nodes are not bound to any more: a
// machine that was replaced would else still find the overlay, and be refused.
func (r *Run) dropReplaced(ctx context.Context) {
	todo := r.Plan.Todo
	used := map[string]bool{}
	for _, w := range todo {
		for _, tag := range trust.AliasTags(w.Match.MACs, w.Match.UUIDs) {
			used[tag] = true
		}
	}
	for _, w := range todo {
		if w.Was != nil {
			r.dropAliases(ctx, w.Name, w.Was.Match, used)
		}
	}
}

// dropAliases removes the tags of a node's machines, but for those in use. A tag
// that another node took over at some time stays.
func (r *Run) dropAliases(ctx context.Context, node string, was spec.Match, used map[string]bool) {
	for _, tag := range trust.AliasTags(was.MACs, was.UUIDs) {
		if used[tag] || !isTagOf(ctx, r.Publisher.Registry, tag, node) {
			continue
		}
		if err := r.Publisher.Registry.Untag(ctx, oci.RepoNode, tag); err != nil {
			r.Say("node:%s, which node %s had before, could not be removed: %v", tag, node, err)
		}
	}
}

// isTagOf reports whether a tag leads to an overlay of a node. Nothing is verified:
// who can move a tag can remove it, too.
func isTagOf(ctx context.Context, in *registry.Registry, tag, node string) bool {
	c, err := trust.Overlay(ctx, in.Source(), []string{tag}, "")
	if err != nil {
		return false
	}
	var o spec.Core
	_, err = spec.DecodeKnown(c.Document, &o)
	return err == nil && o.Node == node
}
