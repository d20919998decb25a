// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/caisson-os/caisson/bootagent/stage"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Stage brings the layer of the generation that waits for a reboot to the state disk,
// however slow the line is: the loader gives it a minute and boots the last good one
// otherwise. It needs no lock, and resumes what was cut. Without a disk it brings into memory
// what a soft-reboot needs.
func (n *Node) Stage(ctx context.Context) error {
	if n.follower == nil || n.boot.Mode == spec.ModeAttached || n.boot.ReadOnly {
		return nil // nothing that is fetched now would be there after a reboot
	}
	s, err := n.folder.Load()
	if err == nil && n.inMemory() {
		return n.stageInMemory(ctx, s)
	}
	if err != nil {
		return err
	}
	g := n.takes(s)
	if g == nil || g.Layer == n.stacked() {
		return nil
	}
	found, err := n.follower.Recall(g)
	if err != nil {
		return err
	}
	store, err := n.store()
	if err != nil {
		return err
	}
	release, err := stage.Begin(n.path(paths.RunStaging))
	if err != nil {
		return err
	}
	defer release()
	var bytes spec.Bytes
	to := stage.Stager{Bytes: &bytes, Store: store, From: n.follower.Source, Kept: append([]string{n.stacked()}, s.Layers()...), Talk: 10 * time.Minute, Say: n.say}
	err = to.Layer(ctx, found.Overlay.Layer, n.follower.Bootstrap)
	if err != nil {
		err = fmt.Errorf("stage generation %d: %w", found.Generation.Generation, err)
	}
	return errors.Join(err, n.noteBytes(found.Overlay.Layer, bytes))
}

// stagedBytes is what was fetched of a layer, in however many attempts.
type stagedBytes struct {
	Layer string `json:"layer"`
	spec.Bytes
}

// noteBytes adds the images that an attempt brought to those of the attempts before.
func (n *Node) noteBytes(layer string, b spec.Bytes) error {
	if b == (spec.Bytes{}) {
		return nil
	}
	if before := n.bytesOf(layer); before != nil {
		b.Fetched, b.Had = b.Fetched+before.Fetched, b.Had+before.Had
	}
	data, err := spec.Encode(stagedBytes{layer, b})
	if err != nil {
		return err
	}
	return durable.WriteFile(n.path(paths.RunStaged), data, 0o640)
}

// bytesOf is what this service fetched of a layer; nil where it did not.
func (n *Node) bytesOf(layer string) *spec.Bytes {
	var s stagedBytes
	data, err := os.ReadFile(n.path(paths.RunStaged))
	if err != nil || json.Unmarshal(data, &s) != nil || s.Layer != layer {
		return nil // a figure for people: what cannot be read is not shown
	}
	return &s.Bytes
}
