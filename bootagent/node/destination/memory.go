// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/nextroot"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/sense/memory"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// fitsMemory is the class of a soft-reboot into a root some of whose images have yet to be
// brought into memory.
func (d *Destination) fitsMemory(next *nextroot.Next, class, why string) (string, string, error) {
	if len(next.Missing) == 0 {
		return class, why, nil
	}
	has, err := memory.Read(d.Path("/proc/meminfo"))
	if err != nil {
		return "", "", err
	}
	if refused := has.Refuses(next.Missing); refused != "" {
		return spec.ClassReboot, refused, nil
	}
	return class, why, nil
}

// stageInMemory brings the images of the root that this node goes to into memory, where a
// soft-reboot leads to it: those that the running one has are there. When that fails, or
// the root is to be had by a reboot only, what was brought is given back.
func (d *Destination) stageInMemory(ctx context.Context, s *state.State) error {
	if g := d.nextBoot(s); g == nil || g.Layer == d.Boot.Generation.Layer {
		return nil
	}
	release, err := stage.Begin(d.Path(paths.RunStaging)) // nothing is freed meanwhile
	if err != nil {
		return err
	}
	defer release()
	next, class, _, err := d.Destination(ctx, s, d.Tracker.Source)
	if err != nil || next == nil || class == spec.ClassSoftReboot && len(next.Missing) == 0 {
		return err
	}
	var bytes spec.Bytes
	if class == spec.ClassSoftReboot {
		to := stage.Stager{Bytes: &bytes, Store: next.Store, From: d.Tracker.Source, Kept: []string{d.root.Layer()}, Talk: 10 * time.Minute, Say: d.Say}
		if err = to.Missing(ctx, stage.Images(*next.Pair.Layer)...); err == nil {
			return d.noteBytes(next.Pair.Generation.Layer, bytes)
		}
		err = fmt.Errorf("stage generation %d: %w", next.Pair.Generation.Generation, err)
	}
	return errors.Join(err, d.giveUp(s, next))
}

// giveUp frees the memory of images that only a root has which is not gone to.
func (d *Destination) giveUp(s *state.State, next *nextroot.Next) error {
	others := []*state.Generation{&d.Boot.Generation}
	if s.Current != nil && s.Current.Layer != next.Pair.Generation.Layer {
		others = append(others, s.Current)
	}
	keep, err := needed(next.Store, d.stackedOnly(), others)
	if err != nil {
		return err
	}
	var errs []error
	for _, i := range next.Pair.Layer.Images {
		if !keep[i.Digest] {
			errs = append(errs, next.Store.Drop(i.Digest))
		}
	}
	return errors.Join(errs...)
}
