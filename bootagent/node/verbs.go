// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/session"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// NoteDeadline notes in the black box that the boot of a new generation is ended.
func NoteDeadline(ctx context.Context, root string) error {
	id, err := session.KernelID()
	if err != nil {
		return err
	}
	return events.Deadline(ctx, root, id)
}

// RestoreAll takes everything back that the journal knows, as if the config had
// become empty. The next apply sets it again. Where lines of the journal are
// damaged, originals are missing: that is an error, after all others are back.
func (n *Node) RestoreAll(ctx context.Context) error {
	found, err := n.effect.Running()
	if err == nil {
		err = n.effect.TakeOver()
	} else { // nothing was applied that could be taken back
		found, err = &track.Found{}, nil
	}
	if err != nil {
		return err
	}
	if err := n.look.MoveMetrics(""); err != nil {
		return err
	}
	result := n.effect.Bounded(ctx, "restoring", found, n.effect.MakingTime(&found.Overlay), func(ctx context.Context) items.Result {
		return items.Reconcile(ctx, n.effect.Items(new(track.Found)), n.session.Journal)
	})
	n.session.RecordChanges(result, 0, "restore --all")
	lifted := n.protect.Protect(nil)
	n.session.Record("restored", events.With("changes", len(result.Changes)), events.With("why", "restore --all"))
	return errors.Join(result.Err, lifted, n.session.Remember(), n.effect.Counted(n.effect.Corrections().Begin("")), n.effect.Retire(ctx, result), n.session.Damage())
}

// Plan asks the registry and says what Sync would change. It remembers nothing.
// What Sync would leave to a reboot or to an operator is one deferred change.
func (n *Node) Plan(ctx context.Context) ([]spec.Drift, error) {
	if n.session.Tracker == nil {
		return nil, n.session.Unbound
	}
	found, err := n.session.Tracker.Look(ctx)
	if err != nil {
		return nil, err
	}
	before, err := n.effect.Running()
	if err != nil && !errors.Is(err, track.ErrNothing) && refusal.Of(err) == "" {
		return nil, err
	}
	if before != nil {
		if err := n.destination.Here(ctx, before, found); err != nil {
			return nil, err
		}
		why := ""
		if live, reason := n.destination.Extent(before, found); !live && n.session.Boot.Mode != spec.ModeAttached {
			why = "waits for a reboot: " + reason
		}
		if found.Held {
			why = found.Why
		}
		if s, err := n.session.Folder.Load(); err == nil && s.Staged != nil && s.Staged.Same(found.Generation) {
			g := *s.Staged
			g.Layer, g.Waits = found.Generation.Layer, found.Generation.Waits
			if reason := n.destination.Rejected(g); reason != "" {
				why = "rejected on this node: " + reason
			}
		}
		if why != "" {
			return []spec.Drift{{Item: "overlay", Key: "generation", From: fmt.Sprint(before.Generation.Generation), To: fmt.Sprint(found.Generation.Generation),
				Action: spec.ActionDefer, Reason: why}}, nil
		}
	}
	if err := n.effect.TakeOver(); err != nil {
		return nil, err
	}
	var previous []item.Item
	var guard items.Guard
	if before != nil {
		previous, guard = n.effect.Items(before), n.effect.Guard(found)
	}
	changes, err := items.Preview(ctx, n.effect.Items(found), previous, guard)
	if err != nil {
		return changes, err
	}
	cannot, err := n.look.Cannot(&found.Overlay)
	if changes = append(changes, cannot...); found.Generation.IsAhead() {
		changes = append(changes, spec.Drift{Item: "overlay", Key: "layer", From: found.Generation.Layer, To: found.Generation.Waits,
			Action: spec.ActionDefer, Reason: "waits for a reboot: " + spec.EffectOf(spec.PartLayer).Why})
	}
	return changes, err
}

// Settle waits until no script that this node started runs in the background any
// more, and returns the status with what came of them.
func (n *Node) Settle(ctx context.Context, st *spec.Status) (*spec.Status, error) {
	if err := items.Wait(n.effect.Began); err != nil || st == nil || n.session.Tracker == nil {
		return st, err
	}
	now, err := n.look.Status(ctx)
	if err != nil {
		return st, err
	}
	return now, n.look.Keep(now)
}
