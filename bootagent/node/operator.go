// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/hold"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Remembers reports whether what an operator says on this node outlives its boot.
func (n *Node) Remembers() bool { return n.session.Scopes.Disk != "" && !n.session.Boot.ReadOnly }

// Freeze has the node keep what it has, until Forward or its time is over.
func (n *Node) Freeze(reason string, lasts time.Duration) error { return n.holds.Freeze(reason, lasts) }

// Forward ends what Freeze, Rollback and Pin began.
func (n *Node) Forward(why string) error { return n.holds.Forward(why) }

// Pause has the node change nothing, until Resume or its time is over. It looks and
// reports all the same. What was protected can be changed by everybody.
func (n *Node) Pause(reason string, lasts time.Duration) error {
	if err := n.holds.Pause(reason, lasts); err != nil {
		return err
	}
	return n.protect.Lift()
}

// Resume ends that. A pause of the fleet is the fleet's to end.
func (n *Node) Resume() error { return n.holds.Resume() }

// Rollback goes back to the generation that this node ran well before the one that it
// runs, and keeps it. No registry is asked.
func (n *Node) Rollback(ctx context.Context, reason string, lasts time.Duration) (*spec.Status, error) {
	return n.cycle.ReturnTo(ctx, n.holds.Make(spec.HoldRollback, reason, lasts), hold.Earlier)
}

// Pin goes to one of the generations that this node ran well, and keeps it.
func (n *Node) Pin(ctx context.Context, generation uint64, reason string, lasts time.Duration) (*spec.Status, error) {
	return n.cycle.ReturnTo(ctx, n.holds.Make(spec.HoldPin, reason, lasts), hold.Numbered(generation))
}

// Confirm ends the trial of a change that waits for its operator: it stands.
func (n *Node) Confirm(ctx context.Context) error {
	if err := n.cycle.Settle(ctx); err != nil {
		return err
	}
	now, err := n.session.Owner.Read()
	if err != nil {
		return err
	}
	s := now.State
	switch {
	case n.session.Waiting(s):
	case s.Trial != nil && !s.Trial.Pending():
		return fmt.Errorf("generation %d was undone: %s", s.Trial.Generation.Generation, s.Trial.Reason)
	default:
		return errors.New("nothing waits to be confirmed")
	}
	g := s.Trial.Generation
	err = n.session.Owner.Commit(record.Change{Urgent: record.Word, State: func(to *state.State) {
		to.Trial.Generation.Unread = n.soak.Unread(to, g)
		to.Confirm(n.root.LayersHere(to)...)
		s = to
	}, Boot: func(b *state.Boot) {
		if s.Best().Generation == g.Generation {
			b.Live.Without = nil
		}
	}})
	if err != nil {
		return err
	}
	n.session.Record("confirmed", events.With("generation", g.Generation), events.With("overlay", g.Overlay))
	n.destination.Tidy(s)
	return n.effect.EndDeadline()
}

// Retry forgets that a generation was undone or did not pass its gates, and that a swap
// failed, and asks for it again.
func (n *Node) Retry(ctx context.Context) (*spec.Status, error) {
	now, err := n.session.Owner.Read()
	if err != nil {
		return nil, err
	}
	if what, why := now.State.Retry(); what != nil {
		n.session.Record("retry", events.With("generation", what.Generation), events.With("why", why))
		if err := n.session.Owner.Commit(record.Change{Urgent: record.Word, State: func(s *state.State) { s.Retry() }}); err != nil {
			return nil, err
		}
	}
	if err := n.retrySwap(); err != nil {
		return nil, err
	}
	n.destination.Retries = true
	return n.cycle.Sync(ctx)
}

// retrySwap has what the machine did not come up with be entered again.
func (n *Node) retrySwap() error {
	found, err := n.effect.Running()
	if errors.Is(err, track.ErrNothing) || refusal.Of(err) != "" {
		return nil // nothing runs that could have been left
	}
	if err != nil {
		return err
	}
	why, err := n.operate.Engine(found).RetrySwap()
	if err == nil && why != "" {
		n.session.Record("retry", events.With("operation", spec.LayerSwapName), events.With("why", why))
	}
	return err
}

// TrialEnds returns how long a change still waits for its operator.
func (n *Node) TrialEnds() (left time.Duration, waits bool) {
	s, err := n.session.Owner.State()
	if err != nil || !n.session.Waiting(s) {
		return 0, false // the next look meets the error
	}
	return max(0, s.Trial.Left(n.session.Up())), true
}
