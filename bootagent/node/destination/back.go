// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

// SoftBack reports whether a soft-reboot leads to what ran before, once what failed is
// rejected: its images are here.
func (d *Destination) SoftBack(s *state.State, failed, good state.Generation, why string) bool {
	s = s.Clone()
	s.GoBack(failed, good, why, time.Now(), d.root.LayersHere(s)...)
	next, class, _, err := d.Destination(context.Background(), s, nil) // it reads the disk alone
	return err == nil && next != nil && class == spec.ClassSoftReboot && len(next.Missing) == 0
}

// CanReturn reports whether an operator's decision to go back, which this root was not told
// of, can be followed on it.
func (d *Destination) CanReturn(s *state.State) bool {
	if s.Hold == nil || s.Current == nil || d.Boot.Mode == spec.ModeAttached || !d.root.RunsHere(s.Current.Layer) || !decide.Older(*s.Current, d.Boot.Generation) {
		return false
	}
	now, err := d.Tracker.Recall(&d.Boot.Generation)
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
		here := stage.Stager{Store: store, Talk: StackTime, Say: d.Say}
		if l, err := here.Describe(context.Background(), layer); err == nil && l.Version != "" {
			return l.Version
		}
	}
	return layer
}
