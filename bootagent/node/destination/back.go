// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// SoftBack reports whether a soft-reboot leads to what ran before, once what failed is
// rejected: its images are here.
func (d *Destination) SoftBack(s *state.State, failed, good state.Generation, why string) bool {
	s = s.Clone()
	s.GoBack(failed, good, why, time.Now(), d.Root.LayersHere(s)...)
	next, class, _, err := d.Destination(context.Background(), s, nil) // it reads the disk alone
	return err == nil && next != nil && class == spec.ClassSoftReboot && len(next.Missing) == 0
}

// CanReturn reports whether an operator's decision to go back, which this root was not told
// of, can be followed on it.
func (d *Destination) CanReturn(s *state.State) bool {
	boot := d.Owner.Boot()
	if s.Hold == nil || s.Current == nil || boot.Mode == spec.ModeAttached || !d.Root.RunsHere(s.Current.Layer) ||
		!decide.Older(*s.Current, boot.Generation) {
		return false
	}
	now, err := d.Tracker.Recall(&boot.Generation)
	if err != nil {
		return false // running says so
	}
	next, err := d.Tracker.Recall(s.Current)
	if err != nil {
		return false // it cannot be gone back to
	}
	live, _ := d.Extent(now, next)
	return live // else the next boot goes back
}

// WayBack is the class of the way to what ran before, once it is saved that it is gone.
func (d *Destination) WayBack(ctx context.Context, live bool) string {
	if live {
		return spec.ClassLive
	}
	_, class, _, err := d.Next(ctx)
	if err != nil {
		return spec.ClassReboot
	}
	return class
}

// NameBeside names one of two generations: by its layer, too, where they differ in that. The
// two may be the same one, on the layer that it came with and on the one before.
func (d *Destination) NameBeside(g, other state.Generation) string {
	name := fmt.Sprintf("generation %d", g.Generation)
	if g.Layer != other.Layer {
		name += " on layer " + d.versionOf(g.Layer)
	}
	return name
}

// versionOf is the version of a layer that is here, else its digest.
func (d *Destination) versionOf(layer string) string {
	if store, err := d.Store(); err == nil {
		here := stage.Stager{Store: store, Talk: StackTime, Say: d.Log.Say}
		if l, err := here.Describe(context.Background(), layer); err == nil && l.Version != "" {
			return l.Version
		}
	}
	return layer
}

// RebootMark begins the line that is ours in a file which others may write, too.
const RebootMark = "caisson: "

// SayMove says how a node that runs something gets to what its next boot runs, and why that way; ""
// where that is what runs: what waits was refused since, or is held.
func (d *Destination) SayMove(running *track.Found) string {
	why := ""
	if s, err := d.Owner.State(); err == nil && d.Tracker != nil {
		if g := d.nextBoot(s); g != nil {
			if to, err := d.Tracker.Recall(g); err == nil { // else the way says why
				_, why = d.Extent(running, to)
			}
		}
	}
	return d.SayWay(why)
}

// SayWay says how this node gets to what waits, in the words of the plan, and why it waits where
// that is not only that it is another layer. It reads the disk alone.
func (d *Destination) SayWay(why string) string {
	_, class, how, err := d.Next(context.Background())
	if err != nil {
		class, how = spec.ClassReboot, err.Error()
	}
	switch {
	case how == noLayer:
		return why
	case why == "" || why == spec.EffectOf(spec.PartLayer).Why:
		return class + ": " + how
	}
	return class + ": " + how + "; " + why
}

// othersWait returns what others wait for a reboot for: a soft-reboot cannot start a kernel that
// they installed.
func (d *Destination) othersWait() (string, error) {
	data, err := os.ReadFile(d.path(paths.RebootReasons))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for line := range bytes.Lines(data) {
		if !bytes.HasPrefix(line, []byte(RebootMark)) {
			return strings.TrimSpace(string(line)), nil
		}
	}
	return "", nil
}

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
	return d.Owner.Note(func(l *record.Live) { l.Had = had })
}

// Axis is the sync axis after the registry was asked.
func (d *Destination) Axis(found *track.Found) (spec.Sync, string) {
	sync, detail := found.Axis()
	if found.Generation.IsAhead() && sync == spec.SyncCurrent {
		s, err := d.Owner.State()
		if err == nil && s.Staged != nil && s.Staged.Same(found.Generation) && d.Rejected(*s.Staged) != "" {
			return spec.SyncBehind, "on its own layer " + RejectedText(*s.Staged, d.Rejected(*s.Staged)) // no reboot leads there
		}
		return spec.SyncBehind, fmt.Sprintf("the layer of generation %d waits for a reboot: %s",
			found.Generation.Generation, spec.EffectOf(spec.PartLayer).Why)
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
