// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

// dropAliases removes the tags of machines that nodes are not bound to any more: a
// machine that was replaced would else still find the overlay, and be refused.
func (p *Publisher) dropAliases(ctx context.Context, old, x *spec.FleetIndex) {
	used := map[string]bool{}
	for _, n := range x.Nodes {
		for _, tag := range trust.AliasTags(n.Match.MACs, n.Match.UUIDs) {
			used[tag] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.Nodes)) {
		was, ok := old.Nodes[name]
		if !ok {
			continue
		}
		for _, tag := range trust.AliasTags(was.Match.MACs, was.Match.UUIDs) {
			if used[tag] {
				continue
			}
			if err := p.Registry.Delete(ctx, oci.RepoNode, tag); err != nil && !errors.Is(err, oci.ErrNotFound) {
				p.Say("node:%s, which node %s had before, could not be removed: %v", tag, name, err)
			}
		}
	}
}
