// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Stage brings the layer of the generation that waits for a reboot to the state disk,
// however slow the line is: the loader gives it a minute and boots the last good one
// otherwise. It needs no lock, and resumes what was cut. Without a disk it brings into memory
// what a soft-reboot needs.
func (d *Destination) Stage(ctx context.Context) error {
	if d.Tracker == nil || d.Boot.Mode == spec.ModeAttached || d.Boot.ReadOnly {
		return nil // nothing that is fetched now would be there after a reboot
	}
	s, err := d.Owner.State()
	if err == nil && d.InMemory() {
		return d.stageInMemory(ctx, s)
	}
	if err != nil {
		return err
	}
	g := d.Candidate(s)
	if g == nil || g.Layer == d.root.Layer() {
		return nil
	}
	found, err := d.Tracker.Recall(g)
	if err != nil {
		return err
	}
	store, err := d.Store()
	if err != nil {
		return err
	}
	release, err := stage.Begin(d.Path(paths.RunStaging))
	if err != nil {
		return err
	}
	defer release()
	var bytes spec.Bytes
	to := stage.Stager{Bytes: &bytes, Store: store, From: d.Tracker.Source, Kept: append([]string{d.root.Layer()}, s.Layers()...), Talk: 10 * time.Minute, Say: d.Say}
	err = to.Layer(ctx, found.Overlay.Layer, d.Tracker.Bootstrap)
	if err != nil {
		err = fmt.Errorf("stage generation %d: %w", found.Generation.Generation, err)
	}
	return errors.Join(err, d.noteBytes(found.Overlay.Layer, bytes))
}

// stagedBytes is what was fetched of a layer, in however many attempts.
type stagedBytes struct {
	Layer string `json:"layer"`
	spec.Bytes
}

// noteBytes adds the images that an attempt brought to those of the attempts before.
func (d *Destination) noteBytes(layer string, b spec.Bytes) error {
	if b == (spec.Bytes{}) {
		return nil
	}
	if before := d.BytesOf(layer); before != nil {
		b.Fetched, b.Had = b.Fetched+before.Fetched, b.Had+before.Had
	}
	data, err := spec.Encode(stagedBytes{layer, b})
	if err != nil {
		return err
	}
	return durable.WriteFile(d.Path(paths.RunStaged), data, 0o640)
}

// BytesOf is what this service fetched of a layer; nil where it did not.
func (d *Destination) BytesOf(layer string) *spec.Bytes {
	var s stagedBytes
	data, err := os.ReadFile(d.Path(paths.RunStaged))
	if err != nil || json.Unmarshal(data, &s) != nil || s.Layer != layer {
		return nil // a figure for people: what cannot be read is not shown
	}
	return &s.Bytes
}
