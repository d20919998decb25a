// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

// Retire ends nodes: their tags go, those of their machines too, and their rows. A
// machine that asks finds nothing; what it runs goes on. Nodes that left the index
// with a publish are retired as well.
func (p *Publisher) Retire(ctx context.Context, names []string, by By) (result *Result, err error) {
	err = p.alone(ctx, p.trusted(), purpose{}, func(ctx context.Context, run *Publisher, batch *registry.Batch, v *view) error {
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
	bound := map[string]spec.Match{}
	for _, name := range names {
		row, listed, err := v.index.Row(ctx, name)
		if err != nil {
			return nil, err
		}
		if bound[name] = row.Match; listed {
			x.Remove(name)
			c.rows = true
		} else if bound[name], err = p.left(ctx, name); err != nil {
			return nil, err
		}
	}
	for name, match := range bound {
		p.dropAliases(ctx, name, match, nil)
		if err := p.Registry.Untag(ctx, oci.RepoNode, name); err != nil {
			return nil, fmt.Errorf("remove node:%s: %w", name, err)
		}
		result.Left = append(result.Left, name)
	}
	result.Unchanged = x.Len()
	if c.rows {
		result.Unchanged -= len(names)
	}
	result.sort()
	return result, p.write(ctx, v.policy, v, batch, c, result)
}

// left returns the machines of a node that has a tag and no row.
func (p *Publisher) left(ctx context.Context, name string) (match spec.Match, err error) {
	src := p.Registry.Source()
	c, err := trust.Overlay(ctx, src, []string{name}, "")
	if isNotFound(err) {
		return match, hint("'caisson verify' lists them", "node %q is not published", name)
	}
	if err != nil {
		return match, fmt.Errorf("node:%s: %w", name, err)
	}
	var o spec.Core
	if _, err := spec.DecodeKnown(c.Document, &o); err != nil || o.Node != name {
		return match, hint("a tag that another program made is its own to remove", "node:%s does not lead to an overlay of that node", name)
	}
	return o.Match, nil
}
