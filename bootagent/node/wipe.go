// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/gate"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Wipe asks for everything anew, as if nothing had been fetched, and then forgets what
// this node keeps of generations that it neither runs nor is to run. Where the registry
// gives nothing that holds, nothing is forgotten. What says what may be believed stays,
// and what is of this node and not of the registry: floor, epoch, what was rejected, holds,
// originals, the histories of scripts and operations.
func (n *Node) Wipe(ctx context.Context) (*spec.Status, error) {
	if n.follower == nil {
		return nil, n.unbound
	}
	n.follower.Anew = true
	st, err := n.Sync(ctx)
	if err != nil {
		return st, fmt.Errorf("nothing is wiped: %w", err)
	}
	s, err := n.folder.Load()
	if err != nil {
		return st, err
	}
	running, err := n.running()
	if err != nil {
		return st, err
	}
	judged, err := gate.Load(n.path(paths.RunGates))
	switch {
	case err != nil:
		return st, err
	case s.Trial.Pending(), judged.Of(n.scopes.Root, running.Generation.Overlay):
		return st, errors.New("nothing is wiped: this node may have to go back from the change that is on trial")
	}
	var gone int
	forget := func(g *state.Generation) bool {
		if g == nil || g.Overlay == running.Generation.Overlay || g.Overlay == n.boot.Generation.Overlay {
			return false
		}
		gone++
		return true
	}
	if forget(s.Previous) {
		s.Previous = nil
	}
	earlier := s.Earlier[:0:0]
	for _, g := range s.Earlier {
		if !forget(&g) {
			earlier = append(earlier, g)
		}
	}
	s.Earlier = earlier
	if err := n.folder.Save(s); err != nil {
		return st, err
	}
	n.record("wiped", events.With("generations", gone), events.With("why", "sync --wipe"))
	n.tidy(s)
	return st, nil
}
