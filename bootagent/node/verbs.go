// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/journal"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// RestoreAll takes everything back that the journal knows, as if the config had
// become empty. The next apply sets it again. Where lines of the journal are
// damaged, originals are missing: that is an error, after all others are back.
func (n *Node) RestoreAll(ctx context.Context) error {
	found, err := n.running()
	if err == nil {
		err = n.takeOver()
	} else { // nothing was applied that could be taken back
		found, err = &track.Found{}, nil
	}
	if err != nil {
		return err
	}
	if err := n.moveMetrics(""); err != nil {
		return err
	}
	result := n.bounded(ctx, "restoring", found, n.makingTime(&found.Overlay), func(ctx context.Context) items.Result {
		return items.Reconcile(ctx, n.items(new(track.Found)), n.journal)
	})
	n.recordChanges(result, 0, "restore --all")
	lifted := n.protect(nil)
	n.record("restored", events.With("changes", len(result.Changes)), events.With("why", "restore --all"))
	return errors.Join(result.Err, lifted, n.remember(), n.counted(n.corrections().Begin("")), n.retire(ctx, result), n.damage())
}

// damage is what the journal has lost.
func (n *Node) damage() error {
	if n.lost != nil {
		return n.lost
	}
	lines := n.journal.DamagedLines()
	if lines == 0 {
		return nil
	}
	return fmt.Errorf("%d lines of the journal are damaged: the originals in them are not known; look at %s, then remove it",
		lines, n.folder.Path("journal", journal.Damaged))
}

// Plan asks the registry and says what Sync would change. It remembers nothing.
// What Sync would leave to a reboot or to an operator is one deferred change.
func (n *Node) Plan(ctx context.Context) ([]spec.Drift, error) {
	if n.follower == nil {
		return nil, n.unbound
	}
	found, err := n.follower.Look(ctx)
	if err != nil {
		return nil, err
	}
	before, err := n.running()
	if err != nil && !errors.Is(err, track.ErrNothing) && refusal.Of(err) == "" {
		return nil, err
	}
	if before != nil {
		if err := n.here(ctx, before, found); err != nil {
			return nil, err
		}
		why := ""
		if live, reason := n.extent(before, found); !live && n.boot.Mode != spec.ModeAttached {
			why = "waits for a reboot: " + reason
		}
		if found.Held {
			why = found.Why
		}
		if s, err := n.folder.Load(); err == nil && s.Staged != nil && s.Staged.Same(found.Generation) {
			g := *s.Staged
			g.Layer, g.Waits = found.Generation.Layer, found.Generation.Waits
			if reason := n.rejected(g); reason != "" {
				why = "rejected on this node: " + reason
			}
		}
		if why != "" {
			return []spec.Drift{{Item: "overlay", Key: "generation", From: fmt.Sprint(before.Generation.Generation), To: fmt.Sprint(found.Generation.Generation),
				Action: spec.ActionDefer, Reason: why}}, nil
		}
	}
	if err := n.takeOver(); err != nil {
		return nil, err
	}
	var previous []item.Item
	var guard items.Guard
	if before != nil {
		previous, guard = n.items(before), n.guard(found)
	}
	changes, err := items.Preview(ctx, n.items(found), previous, guard)
	if err != nil {
		return changes, err
	}
	cannot, err := n.cannot(&found.Overlay)
	if changes = append(changes, cannot...); found.Generation.IsAhead() {
		changes = append(changes, spec.Drift{Item: "overlay", Key: "layer", From: found.Generation.Layer, To: found.Generation.Waits,
			Action: spec.ActionDefer, Reason: "waits for a reboot: " + spec.EffectOf(spec.PartLayer).Why})
	}
	return changes, err
}

// Settle waits until no script that this node started runs in the background any
// more, and returns the status with what came of them.
func (n *Node) Settle(ctx context.Context, st *spec.Status) (*spec.Status, error) {
	if err := items.Wait(n.began); err != nil || st == nil || n.follower == nil {
		return st, err
	}
	now, err := n.Status(ctx)
	if err != nil {
		return st, err
	}
	return now, n.keep(now)
}
