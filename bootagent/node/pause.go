// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
)

// pause returns the pause of this node, nil when there is none or it is over: an
// operator's here, or the fleet's. The newest overlay that was accepted says what the
// fleet wants, also one that waits for a reboot.
func (n *Node) pause(found *track.Found) (*spec.Hold, error) {
	s, err := n.folder.Load()
	if err != nil {
		return nil, err
	}
	if p := s.PauseAt(time.Now().Unix()); p != nil {
		return p, nil
	}
	if s.Staged != nil && s.Staged.Overlay != found.Generation.Overlay && decide.Older(found.Generation, *s.Staged) {
		if staged, err := n.follower.Recall(s.Staged); err == nil { // one that was lost pauses nothing
			found = staged
		}
	}
	p := found.Overlay.Pause
	if p == nil || p.Until != 0 && p.Until <= time.Now().Unix() {
		return nil, nil
	}
	return &spec.Hold{Kind: spec.HoldPause, Author: fleet, Reason: p.Reason, Until: p.Until}, nil
}

// fleet is who pauses a node by its overlay.
const fleet = "the fleet"

// rest puts a generation in effect that says that nothing is to be changed.
func (n *Node) rest(ctx context.Context, next *track.Found, why string) (*spec.Status, error) {
	n.say("nothing is changed now: %s", why)
	if err := n.cycle(ctx, &turn{event: decide.Effect, next: next, rests: true}); err != nil {
		return nil, err
	}
	n.boot.Live.TakenBack = nil
	if err := n.remember(); err != nil {
		return nil, err
	}
	result := items.Look(ctx, n.items(next), n.guard(next))
	if err := n.counted(n.corrections().Save()); err != nil {
		return nil, err
	}
	return n.report(next, result)
}
