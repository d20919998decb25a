// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Wipe asks for everything again, as if nothing had been fetched, and then forgets what
// this node keeps of generations that it neither runs nor is to run. Where the registry
// gives nothing that holds, nothing is forgotten. What says what may be believed stays,
// and what is of this node and not of the registry: floor, epoch, what was rejected, holds,
// originals, the histories of scripts and operations.
func (n *Node) Wipe(ctx context.Context) (*spec.Status, error) {
	if n.session.Tracker == nil {
		return nil, n.session.Unbound
	}
	n.session.Tracker.Anew = true
	st, err := n.cycle.Sync(ctx)
	if err != nil {
		return st, fmt.Errorf("nothing is wiped: %w", err)
	}
	s, err := n.session.Owner.State()
	if err != nil {
		return st, err
	}
	running, err := n.effect.Running()
	if err != nil {
		return st, err
	}
	judged, err := gate.Load(n.session.Path(paths.RunGates))
	switch {
	case err != nil:
		return st, err
	case s.Trial.Pending(), judged.Of(n.session.Scopes.Root, running.Generation.Overlay):
		return st, errors.New("nothing is wiped: this node may have to go back from the change that is on trial")
	}
	gone := 0
	err = n.session.Owner.Commit(record.Change{State: func(to *state.State) {
		gone = to.Forget(running.Generation, n.session.Boot.Generation)
		s = to
	}})
	if err != nil {
		return st, err
	}
	n.session.Record("wiped", events.With("generations", gone), events.With("why", "sync --wipe"))
	n.destination.Tidy(s)
	return st, nil
}
