// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
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
	if len(result.Changes) == 0 && same(result, last) {
		return nil, nil
	}
	result.Beside(last)
	return n.look.Report(found, result)
}

// same reports whether a look at some kinds has found what the last one had.
func same(r items.Result, last spec.Status) bool {
	left := 0
	for _, d := range last.Drift {
		if slices.ContainsFunc(r.Items, func(i spec.ItemStatus) bool { return i.Name == d.Item }) {
			left++
		}
	}
	return left == len(r.Drift) && !slices.ContainsFunc(r.Drift, func(d spec.Drift) bool {
		return !slices.ContainsFunc(last.Drift, func(l spec.Drift) bool {
			return l.Item == d.Item && l.Key == d.Key && l.From == d.From && l.To == d.To && l.Action == d.Action
		})
	})
}

// Overlay is what the node runs.
func (n *Node) Overlay() (*spec.Overlay, error) {
	found, err := n.effect.Running()
	if err != nil {
		return nil, err
	}
	return &found.Overlay, nil
}

// Clear ends the quarantine of one setting, of a kind when key is empty, or of all, and
// returns what was quarantined. The service corrects it within seconds.
func (n *Node) Clear(item, key string) ([]spec.Drift, error) {
	ended := n.effect.Corrections().Clear(item, key)
	if err := n.effect.Corrections().Save(); err != nil {
		return nil, err
	}
	for _, d := range ended {
		s := rules.Spelled(d)
		n.session.Record("cleared", events.With("item", s.Item), events.With("key", s.Key), events.With("count", s.Count), events.With("rival", s.Rival))
	}
	return ended, nil
}
