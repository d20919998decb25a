// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/oci"
)

// heal adds to a change what puts right a publish that was cut: nodes whose tag it has
// moved, and that the change does not publish, get again what their row says, of the new
// generation.
func (p *Publisher) heal(ctx context.Context, v *view, c *change) error {
	if !v.index.Root.Reserved {
		return nil
	}
	rows, err := c.index.All(ctx)
	if err != nil {
		return err
	}
	torn, err := p.torn(ctx, rows)
	if err != nil {
		return err
	}
	for _, w := range c.todo {
		if !w.resigned {
			delete(torn, w.name)
		}
	}
	c.todo = slices.DeleteFunc(c.todo, func(w work) bool { return torn[w.name] }) // a signature alone would not do
	c.rows = true                                                                 // the generation that was given out is nobody's
	p.Say("a publish was cut: %d nodes get again what the index says of them", len(torn))
	todo, err := p.keep(ctx, v, c.index, slices.Sorted(maps.Keys(torn)), func(string) bool { return true })
	c.todo = append(c.todo, todo...)
	return err
}

// torn returns the nodes whose tag does not lead to what their row says: a publish
// was cut after it had moved them.
func (p *Publisher) torn(ctx context.Context, rows index.Rows) (map[string]bool, error) {
	var todo []work
	for name, row := range rows {
		todo = append(todo, work{name: name, was: &row})
	}
	var mu sync.Mutex
	torn := map[string]bool{}
	err := each(ctx, todo, func(ctx context.Context, w *work) error {
		resp, err := p.Registry.Source().Manifest(ctx, oci.RepoNode, w.name, "")
		if err != nil && !isNotFound(err) {
			return err
		}
		if err != nil || resp.Digest != w.was.Manifest {
			mu.Lock()
			defer mu.Unlock()
			torn[w.name] = true
		}
		return nil
	})
	return torn, err
}
