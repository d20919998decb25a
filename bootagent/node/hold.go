// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/cycle"
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/spec"
)

// Remembers reports whether what an operator says on this node outlives its boot.
func (n *Node) Remembers() bool { return n.session.Scopes.Disk != "" && !n.session.Boot.ReadOnly }

// Freeze has the node keep what it has, until Forward or its time is over.
func (n *Node) Freeze(reason string, lasts time.Duration) error {
	s, err := n.session.Folder.Load()
	if err != nil {
		return err
	}
	h := n.cycle.Hold(spec.HoldFreeze, reason, lasts)
	s.Keep(h)
	if err := n.session.Folder.Save(s); err != nil {
		return err
	}
	n.cycle.RecordHold("frozen", h, cycle.GenerationOf(s.Best()))
	return nil
}

// Pause has the node change nothing, until Resume or its time is over. It looks and
// reports all the same. What was protected can be changed by everybody.
func (n *Node) Pause(reason string, lasts time.Duration) error {
	s, err := n.session.Folder.Load()
	if err != nil {
		return err
	}
	h := n.cycle.Hold(spec.HoldPause, reason, lasts)
	s.Paused = &h
	if err := n.session.Folder.Save(s); err != nil {
		return err
	}
	n.cycle.RecordHold("paused", h, cycle.GenerationOf(s.Best()))
	return n.protect.Lift()
}

// Resume ends that. A pause of the fleet is the fleet's to end.
func (n *Node) Resume() error {
	s, err := n.session.Folder.Load()
	if err != nil || s.Paused == nil {
		return err
	}
	s.Paused = nil
	if err := n.session.Folder.Save(s); err != nil {
		return err
	}
	n.session.Record("resumed", events.With("generation", cycle.GenerationOf(s.Best())))
	return nil
}

// Rollback goes back to the generation that this node ran well before the one that it
// runs, and keeps it. No registry is asked.
func (n *Node) Rollback(ctx context.Context, reason string, lasts time.Duration) (*spec.Status, error) {
	return n.cycle.ReturnTo(ctx, n.cycle.Hold(spec.HoldRollback, reason, lasts), func(kept []state.Generation, now state.Generation) *state.Generation {
		i := slices.IndexFunc(kept, func(g state.Generation) bool { return decide.Older(g, now) && g.Overlay != now.Overlay })
		if i < 0 {
			return nil
		}
		return &kept[i]
	})
}

// Pin goes to one of the generations that this node ran well, and keeps it.
func (n *Node) Pin(ctx context.Context, generation uint64, reason string, lasts time.Duration) (*spec.Status, error) {
	return n.cycle.ReturnTo(ctx, n.cycle.Hold(spec.HoldPin, reason, lasts), func(kept []state.Generation, _ state.Generation) *state.Generation {
		i := slices.IndexFunc(kept, func(g state.Generation) bool { return g.Generation == generation })
		if i < 0 {
			return nil
		}
		return &kept[i]
	})
}
