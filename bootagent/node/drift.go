// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/spec"
)

// Early looks at some kinds, of which somebody has said that they may be others now, and
// does what Apply does about drift there. There is no status when nothing is different.
func (n *Node) Early(ctx context.Context, kinds []string) (*spec.Status, error) {
	found, err := n.effect.Running()
	if err != nil {
		return nil, err
	}
	guard := n.effect.Guard(found)
	if guard == nil { // nothing was set yet
		return n.cycle.Apply(ctx)
	}
	paused, err := n.effect.PausedBy(found)
	if err != nil {
		return nil, err
	}
	some := slices.DeleteFunc(n.effect.Items(found), func(i item.Item) bool { return !slices.Contains(kinds, i.Name()) })
	result := n.effect.LookAt(ctx, found, func(ctx context.Context) items.Result {
		if paused == "" {
			return items.Keep(ctx, some, n.session.Journal, guard)
		}
		return items.Look(ctx, some, guard)
	})
	n.session.RecordChanges(result, found.Generation.Generation, "drift")
	if err := n.effect.Counted(n.effect.Corrections().Keep(found.Generation.Overlay)); err != nil {
		return nil, err
	}
	last := n.session.Last()
	if len(result.Changes) == 0 && result.Same(last) {
		return nil, nil
	}
	result.Beside(last)
	return n.look.Report(found, result)
}

// Overlay is what the node runs.
func (n *Node) Overlay() (*spec.Overlay, error) {
	return running(n, func(f *track.Found) (*spec.Overlay, error) { return &f.Overlay, nil })
}

// Clear ends the quarantine of one setting, of a kind when key is empty, or of all, and
// returns what was quarantined. The service corrects it within seconds.
func (n *Node) Clear(item, key string) ([]spec.Drift, error) { return n.effect.Clear(item, key) }
