// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/policy"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/bootagent/window"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// guard decides about drift of what an overlay asks for. It is nil on a root that has
// just come up, and after all was put back: what differs was not set then.
func (n *Node) guard(found *track.Found) items.Guard {
	if !n.begun() || n.corrections().Blank() {
		return nil
	}
	last := n.last()
	return &policy.Keeper{
		Rule: func(item, key string) spec.Enforcement {
			e := found.Overlay.Enforced(item, key)
			if n.late(found, found.Overlay.Maintenance.RealtimeOf(item, key)) != "" {
				e.Policy = spec.PolicyReport
			}
			return e
		},
		Late: func(item, key string) string { return n.late(found, found.Overlay.Maintenance.RealtimeOf(item, key)) },
		Book: n.corrections(),
		Fresh: func(item, key string) bool {
			return slices.ContainsFunc(last.Drift, func(d spec.Drift) bool {
				return d.Action == spec.ActionDefer && d.Item == item && d.Key == key
			})
		},
		Rival: n.o.Rival, Now: time.Now(), Up: n.up(),
		Began: func(quarantined []spec.Drift) {
			if n.lock == nil {
				return // only looking
			}
			for _, d := range quarantined {
				why := found.Overlay.Enforced(d.Item, d.Key).Budget.String()
				d = rules.Spelled(d)
				n.record("quarantined", events.With("item", d.Item), events.With("key", d.Key), events.With("from", d.From), events.With("to", d.To),
					events.With("count", d.Count), events.With("rival", d.Rival), events.With("why", why))
			}
		},
	}
}

// late says why what an operation of type realtime manages is not set now, "" where it
// is. Whatever a boot sets it sets at once.
func (n *Node) late(found *track.Found, r *spec.Realtime) string {
	switch {
	case r == nil || len(r.Windows) == 0:
		return ""
	case !n.synchronised():
		return "its window is not known: the clock is not synchronised"
	}
	if ok, why := window.May(found.Overlay.Maintenance, r.Windows, n.now()); !ok {
		return why
	}
	return ""
}

// Early looks at some kinds, of which somebody has said that they may be others now, and
// does what Apply does about drift there. There is no status when nothing is different.
func (n *Node) Early(ctx context.Context, kinds []string) (*spec.Status, error) {
	found, err := n.running()
	if err != nil {
		return nil, err
	}
	guard := n.guard(found)
	if guard == nil { // nothing was set yet
		return n.Apply(ctx)
	}
	paused, err := n.pausedBy(found)
	if err != nil {
		return nil, err
	}
	some := slices.DeleteFunc(n.items(found), func(i item.Item) bool { return !slices.Contains(kinds, i.Name()) })
	result := n.lookAt(ctx, found, func(ctx context.Context) items.Result {
		if paused == "" {
			return items.Keep(ctx, some, n.journal, guard)
		}
		return items.Look(ctx, some, guard)
	})
	n.recordChanges(result, found.Generation.Generation, "drift")
	if err := n.counted(n.corrections().Keep(found.Generation.Overlay)); err != nil {
		return nil, err
	}
	last := n.last()
	if len(result.Changes) == 0 && same(result, last) {
		return nil, nil
	}
	result.Beside(last)
	return n.report(found, result)
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
	found, err := n.running()
	if err != nil {
		return nil, err
	}
	return &found.Overlay, nil
}

// corrections is the book of what was corrected lately. One that cannot be read is
// begun anew, and said.
func (n *Node) corrections() *policy.Book {
	if n.book == nil {
		var err error
		if n.book, err = policy.Open(n.folder.Path(), n.scopes.Kernel); err != nil {
			n.say("corrections are counted anew: %v", err)
		}
	}
	return n.book
}

// counted is the error of keeping the book, less that of a disk that takes no writes: what
// is set must not hang on a count.
func (n *Node) counted(err error) error {
	if track.OfDisk(err) {
		n.say("corrections are not kept: %v", err)
		return nil
	}
	return err
}

// moveCorrections notes that a generation is in effect; before is nil where nothing was.
func (n *Node) moveCorrections(before, next *track.Found, result items.Result) error {
	if before == nil {
		return n.counted(n.corrections().Begin(next.Generation.Overlay))
	}
	return n.counted(n.corrections().Move(next.Generation.Overlay, changedKinds(before, next), result.Drift))
}

// changedKinds are the kinds of items that differ between two generations.
func changedKinds(from, to *track.Found) (kinds []string) {
	if from.Generation.Layer != to.Generation.Layer {
		kinds = append(kinds, accounts.Name)
	}
	for _, e := range spec.Changes(&from.Overlay, &to.Overlay) {
		if kind, ok := strings.CutPrefix(e.Part, "items."); ok {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Clear ends the quarantine of one setting, of a kind when key is empty, or of all, and
// returns what was quarantined. The service corrects it within seconds.
func (n *Node) Clear(item, key string) ([]spec.Drift, error) {
	ended := n.corrections().Clear(item, key)
	if err := n.corrections().Save(); err != nil {
		return nil, err
	}
	for _, d := range ended {
		s := rules.Spelled(d)
		n.record("cleared", events.With("item", s.Item), events.With("key", s.Key), events.With("count", s.Count), events.With("rival", s.Rival))
	}
	return ended, nil
}
