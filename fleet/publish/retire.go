// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"
	"maps"

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
func (p *Publisher) Retire(ctx context.Context, names []string, by By) (result *Result, err error) {
	err = p.runAlone(ctx, p.trusted(), purpose{half: true}, func(ctx context.Context, run *Publisher, batch *registry.Batch, v *view) error {
		result, err = run.retire(ctx, v, batch, names, by)
		return err
	})
	return result, err
}

func (p *Publisher) retire(ctx context.Context, v *view, batch *registry.Batch, names []string, by By) (*Result, error) {
	if v.index == nil {
		return nil, p.unpublished()
	}
	if err := p.checkSigners(v.policy); err != nil {
		return nil, err
	}
	x := v.next()
	x.Root.Generation = max(x.Root.Generation, v.seen.Reserved) + 1
	result := newResult(x.Root)
	c := &change{by: by, verb: "retire", index: x, reject: v.rejected()}
	var unknown error
	bound := map[string]spec.Match{}
	for _, name := range names {
		row, listed, err := v.index.Row(ctx, name)
		if err != nil {
			return nil, err
		}
		if listed {
			x.Remove(name)
			c.rows, bound[name] = true, row.Match
			continue
		}
		match, err := p.readLeft(ctx, name)
		if isNotFound(err) {
			unknown = hint("'caisson verify' lists them", "node %q is not published", name)
			p.Say("%v: nothing of it is left to retire", unknown)
			continue
		}
		if err != nil {
			return nil, err
		}
		bound[name] = match
	}
	if len(bound) == 0 {
		return nil, unknown
	}
	result.Left = plain.Names(maps.Keys(bound))
	if err := p.repairTags(ctx, v, c); err != nil {
		return nil, err
	}
	rows, err := x.All(ctx)
	if err != nil {
		return nil, err
	}
	result.Unchanged = len(rows) - len(c.todo)
	if err := p.write(ctx, v.policy, v, batch, c, result); err != nil || p.Dry {
		return result, err
	}
	for _, name := range result.Left {
		p.dropAliases(ctx, name, bound[name], nil)
		if err := p.Registry.Untag(ctx, oci.RepoNode, name); err != nil {
			return nil, fmt.Errorf("remove node:%s: %w", name, err)
		}
	}
	return result, batch.Flush()
}

// readLeft returns the machines of a node that has a tag and no row; [oci.ErrNotFound] where
// it has no tag, or one that a registry could not remove.
func (p *Publisher) readLeft(ctx context.Context, name string) (match spec.Match, err error) {
	raw, _, err := p.Registry.Manifest(ctx, oci.RepoNode, name)
	if err != nil {
		return match, fmt.Errorf("node:%s: %w", name, err)
	}
	if m, err := oci.ParseManifest(raw); err == nil && m.ArtifactType == oci.TypeGone {
		return match, oci.ErrNotFound
	}
	c, err := trust.Overlay(ctx, p.Registry.Source(), []string{name}, "")
	if err != nil {
		return match, fmt.Errorf("node:%s: %w", name, err)
	}
	var o spec.Core
	if _, err := spec.DecodeKnown(c.Document, &o); err != nil || o.Node != name {
		return match, hint("remove the tag with the program that made it", "node:%s does not lead to an overlay of that node", name)
	}
	return o.Match, nil
}
