// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust/refusal"
)

// Apply reconciles the node with the overlay it runs. A generation that was
// staged for this boot is promoted: it came up and was applied.
func (n *Node) Apply(ctx context.Context) (*spec.Status, error) {
	found, err := n.running()
	if err != nil {
		return nil, err
	}
	result := items.Reconcile(ctx, n.items(found.Overlay.Items), n.journal)
	if ctx.Err() == nil {
		if err := n.promote(found.Generation); err != nil {
			return nil, err
		}
	}
	return n.report(found, result)
}

// running is the overlay that this root runs, verified anew: the one the loader
// chose, until a live change has moved the node on.
func (n *Node) running() (*track.Found, error) {
	if n.follower == nil {
		return nil, n.unbound
	}
	s, err := n.folder.Load()
	if err != nil {
		return nil, err
	}
	g := n.boot.Generation
	if s.Current != nil && (s.Current.Layer == g.Layer || n.boot.Mode == spec.ModeAttached) && !older(s.Current, &g) {
		g = *s.Current
	}
	if g.Overlay == "" {
		return nil, track.ErrNothing
	}
	return n.follower.Recall(&g)
}

func older(a, b *state.Generation) bool {
	return a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.Generation < b.Generation
}

// promote notes that a generation is good, which ends the deadline of its boot. One
// that was good before has no deadline.
func (n *Node) promote(g state.Generation) error {
	if err := n.keepGood(g); err != nil {
		return err
	}
	if err := os.Remove(n.path(paths.RunDeadline)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (n *Node) keepGood(g state.Generation) error {
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	if s.Staged == nil || s.Staged.Overlay != g.Overlay || s.Staged.Generation != g.Generation {
		return nil
	}
	s.Promote()
	if err := n.folder.Save(s); err != nil {
		return err
	}
	// What is left over costs room only.
	if err := errors.Join(n.folder.CollectOverlays(s), n.collect(s)); err != nil {
		n.o.Say("clean up: %v", err)
	}
	return nil
}

// Sync asks for a newer generation and applies it when the running root can take
// it, all of it or nothing. What needs another root is staged for the next boot.
// A refusal changes nothing; the node goes on as it is.
func (n *Node) Sync(ctx context.Context) (*spec.Status, error) {
	if n.follower == nil {
		return nil, n.unbound
	}
	before, err := n.running()
	switch {
	case errors.Is(err, track.ErrNothing):
	case err != nil: // the keys were changed, or the disk was: what the registry has may still be good
		n.o.Say("what this node runs is lost or not believed any more: %v", err)
	}
	found, err := n.follower.Sync(ctx)
	n.boot.Sync, n.boot.SyncDetail = track.Describe(err)
	if err != nil {
		if saveErr := n.remember(); saveErr != nil {
			return nil, errors.Join(err, saveErr)
		}
		if before == nil {
			return nil, err
		}
		status, statusErr := n.Status(ctx)
		return status, errors.Join(err, statusErr)
	}
	n.boot.Sync, n.boot.SyncDetail = found.Axis()
	if err := n.remember(); err != nil {
		return nil, err
	}
	switch {
	case found.Held || found.Unchanged:
		return n.Apply(ctx)
	case before != nil && before.Generation.Overlay == found.Generation.Overlay:
		// A new generation of what runs already: there is nothing to prove.
		if err := n.promote(found.Generation); err != nil {
			return nil, err
		}
		return n.Apply(ctx)
	}
	return n.move(ctx, before, found)
}

// move goes from one overlay to the next on the running root.
func (n *Node) move(ctx context.Context, before, next *track.Found) (*spec.Status, error) {
	if before == nil && (n.boot.Mode == spec.ModeAttached || next.Overlay.Layer == n.boot.Generation.Layer) {
		result := items.Reconcile(ctx, n.items(next.Overlay.Items), n.journal)
		if err := n.promote(next.Generation); err != nil {
			return nil, err
		}
		return n.report(next, result)
	}
	if before == nil {
		return nil, n.wait(next, "another layer")
	}
	if live, why := reached(&before.Overlay, &next.Overlay); !live && n.boot.Mode != spec.ModeAttached {
		if err := n.wait(next, why); err != nil {
			return nil, err
		}
		return n.Status(ctx)
	}
	result := items.Transact(ctx, n.items(next.Overlay.Items), n.items(before.Overlay.Items), n.journal)
	if result.Err != nil {
		n.o.Say("generation %d was not applied: %v", next.Generation.Generation, result.Err)
		n.boot.Sync, n.boot.SyncDetail = spec.SyncBehind, result.Err.Error()
		if err := n.remember(); err != nil {
			return nil, err
		}
		return n.report(before, result)
	}
	if err := n.promote(next.Generation); err != nil {
		return nil, err
	}
	n.o.Say("generation %d is applied", next.Generation.Generation)
	return n.report(next, result)
}

// wait leaves a generation to the next boot.
func (n *Node) wait(next *track.Found, why string) error {
	n.o.Say("generation %d waits for a reboot: %s", next.Generation.Generation, why)
	n.boot.Sync, n.boot.SyncDetail = spec.SyncBehind, "waits for a reboot: "+why
	return n.remember()
}

// RestoreAll takes everything back that the journal knows, as if the config had
// become empty. The next apply sets it again.
func (n *Node) RestoreAll(ctx context.Context) error {
	return items.Reconcile(ctx, n.items(spec.Items{}), n.journal).Err
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
		why := ""
		if live, reason := reached(&before.Overlay, &found.Overlay); !live && n.boot.Mode != spec.ModeAttached {
			why = "waits for a reboot: " + reason
		}
		if found.Held {
			why = "this node is frozen"
		}
		if why != "" {
			return []spec.Drift{{Item: "overlay", Key: "generation", From: fmt.Sprint(before.Generation.Generation), To: fmt.Sprint(found.Generation.Generation),
				Action: spec.ActionDefer, Reason: why}}, nil
		}
	}
	return items.Preview(ctx, n.items(found.Overlay.Items))
}

// Track sets the tracking axis.
func (n *Node) Track(to spec.Tracking) error {
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	s.Tracking = to
	return n.folder.Save(s)
}
