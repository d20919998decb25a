// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/spec"
)

// ForThisRoot makes of what the registry has what can act on this root. Where its layer is
// another one that this root cannot have as it is, but it is signed for the one that runs,
// too, that layer waits, and what is live of the rest does not.
//
// There must be a good generation on this layer: what is ahead of it does not come back
// without it.
func (d *Destination) ForThisRoot(ctx context.Context, before, found *track.Found) error {
	if d.Owner.Boot().Mode == spec.ModeAttached || found.Held || found.Unchanged {
		return nil
	}
	runs := d.Root.Layer()
	if before != nil {
		runs = before.Generation.Layer
	}
	if d.Root.Bring(ctx, found.Generation.Layer); d.Root.Fits(found.Generation.Layer) == nil {
		return nil
	}
	s, err := d.Owner.State()
	if err != nil || s.Current == nil || s.Current.Layer != runs {
		return err
	}
	if g := &found.Generation; g.Layer != runs && slices.Contains(found.RunsOn, runs) {
		g.Layer, g.Waits = runs, g.Layer
	}
	return nil
}

// NoteHad notes what the registry had when it was first asked since this machine
// started, where its loader has not: that may have reached no registry.
func (d *Destination) NoteHad(found *track.Found) error {
	if d.Owner.Boot().Live.Had != "" {
		return nil
	}
	had, err := spec.RootID(&found.Overlay, found.Overlay.Layer)
	if err != nil {
		return err
	}
	return d.Owner.Note(func(l *state.Live) { l.Had = had })
}

// Axis is the sync axis after the registry was asked.
func (d *Destination) Axis(found *track.Found) (spec.Sync, string) {
	sync, detail := found.Axis()
	if found.Generation.IsAhead() && sync == spec.SyncCurrent {
		s, err := d.Owner.State()
		if err == nil && s.Staged != nil && s.Staged.Same(found.Generation) && d.Rejected(*s.Staged) != "" {
			return spec.SyncBehind, "on its own layer " + RejectedText(*s.Staged, d.Rejected(*s.Staged)) // no reboot leads there
		}
		return spec.SyncBehind, fmt.Sprintf("the layer of generation %d waits for a reboot: %s", found.Generation.Generation, spec.EffectOf(spec.PartLayer).Why)
	}
	return sync, detail
}

// Extent says how far a change reaches: what is live can be applied to the running
// root, everything else needs another one. On which layer the two run decides whether the
// layer changes, not which one an overlay names that runs without it.
func (d *Destination) Extent(from, to *track.Found) (live bool, why string) {
	for _, e := range spec.Changes(&from.Overlay, &to.Overlay) {
		if !spec.Live(e.Class) && e.Part != spec.PartLayer {
			return false, e.Why
		}
	}
	if b := d.Owner.Boot().Live.ForBoot; b != nil && b.Overlay == to.Generation.Overlay && !d.Retries {
		return false, b.Reason
	}
	if to.Generation.Layer != from.Generation.Layer {
		if err := d.Root.Fits(to.Generation.Layer); err != nil {
			return false, err.Error()
		}
	}
	return true, ""
}
