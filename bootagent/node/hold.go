// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/hold"
	"github.com/caisson-os/caisson/spec"
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
