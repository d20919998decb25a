// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
)

// here makes of what the registry has what can act on this root. Where its layer is
// another one, but it is signed for the one that is stacked, too, that layer waits, and
// what is live of the rest does not.
//
// There must be a good generation on this layer: what is ahead of it is not booted by
// loaders of earlier releases, and does not come back without it.
func (n *Node) here(found *track.Found) error {
	if n.boot.Mode == spec.ModeAttached || found.Held || found.Unchanged {
		return nil
	}
	stacked := n.boot.Generation.Layer
	s, err := n.folder.Load()
	if err != nil || s.Current == nil || s.Current.Layer != stacked {
		return err
	}
	if g := &found.Generation; g.Layer != stacked && slices.Contains(found.RunsOn, stacked) {
		g.Layer, g.Waits = stacked, g.Layer
	}
	return nil
}

// axis is the sync axis after the registry was asked.
func (n *Node) axis(found *track.Found) (spec.Sync, string) {
	sync, detail := found.Axis()
	if found.Generation.IsAhead() && sync == spec.SyncCurrent {
		return spec.SyncBehind, fmt.Sprintf("the layer of generation %d waits for a reboot: %s", found.Generation.Generation, spec.EffectOf(spec.PartLayer).Why)
	}
	return sync, detail
}

// extent says how far a change reaches: what is live can be applied to the running
// root, everything else needs another one. Which layer is stacked decides whether the
// layer changes, not which one an overlay names that runs without it.
func (n *Node) extent(from, to *track.Found) (live bool, why string) {
	for _, e := range spec.Changes(&from.Overlay, &to.Overlay) {
		if !spec.Live(e.Class) && e.Part != spec.PartLayer {
			return false, e.Why
		}
	}
	if to.Generation.Layer != n.boot.Generation.Layer && n.boot.Mode != spec.ModeAttached {
		return false, spec.EffectOf(spec.PartLayer).Why
	}
	return true, ""
}
