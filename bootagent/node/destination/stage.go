// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/root"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// Stage brings the layer of the generation that waits for a reboot to the state disk,
// however slow the line is: the loader gives it a minute and boots the last good one
// otherwise. It needs no lock, and resumes what was cut; where another layer waits by now it goes on
// with that one. Without a disk it brings into memory what a soft-reboot needs.
func (d *Destination) Stage(ctx context.Context) error {
	boot := d.Owner.Boot()
	if d.Tracker == nil || boot.Mode == spec.ModeAttached || boot.ReadOnly {
		return nil // nothing that is fetched now would be there after a reboot
	}
	bring := d.stageOnDisk
	if boot.InMemory() {
		bring = d.stageInMemory
	}
	for {
		s, err := d.Owner.State()
		if err != nil {
			return err
		}
		own, cut := context.WithCancel(ctx)
		brought := make(chan error, 1)
		go func() { brought <- bring(own, s) }()
		for now := s; now == nil || d.nextLayer(now) == d.nextLayer(s); {
			select {
			case err := <-brought:
				cut()
				return err
			case <-time.After(2 * time.Second):
				now, _ = d.Owner.State() // nil is looked at again
			}
		}
		cut()
		<-brought // whatever it says is of a layer that no boot enters
	}
}

// nextLayer returns the layer that the next boot enters, "" where none is known.
func (d *Destination) nextLayer(s *state.State) string {
	if g := d.nextBoot(s); g != nil {
		return g.Layer
	}
	return ""
}

// stageOnDisk is Stage of a node that keeps layers on a disk.
func (d *Destination) stageOnDisk(ctx context.Context, s *state.State) error {
	g := d.Candidate(s)
	if g == nil || g.Layer == d.Root.Layer() {
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
	release, err := stage.Begin(d.path(paths.RunStaging))
	if err != nil {
		return err
	}
	defer release()
	var bytes spec.Bytes
	to := stage.Stager{Bytes: &bytes, Store: store, From: d.Tracker.Source, Kept: append([]string{d.Root.Layer()}, s.Layers()...),
		Talk: 10 * time.Minute, Say: d.Log.Say}
	if err = to.Layer(ctx, found.Overlay.Layer, d.Tracker.Bootstrap); err == nil {
		err = d.Enters(store, found.Overlay.Layer)
	}
	err = fault.In(err, "stage generation %d", found.Generation.Generation)
	return errors.Join(err, d.noteBytes(ctx, found.Overlay.Layer, bytes))
}

// Enters returns an error where no boot of this machine would enter the kernel of a layer that is
// on its disk, while another one runs. One of the same release is entered where that is how this
// one was.
func (d *Destination) Enters(store *layers.Store, layer string) error {
	here := stage.Stager{Store: store, Talk: StackTime, Say: d.Log.Say}
	l, err := here.Describe(context.Background(), layer) // it reads the disk alone
	runs := d.Owner.Boot().Layer.Kernel
	if err != nil || l.Kernel.Digest == runs.Digest {
		return err
	}
	if l.Kernel.Release == runs.Release {
		line, err := os.ReadFile(d.path("/proc/cmdline"))
		if err != nil || !slices.Contains(strings.Fields(string(line)), spec.KexecMarker) {
			return err
		}
	}
	return root.CheckKernel(d.path(efivar.Dir), store.Path(l.Kernel.Digest))
}

// stagedBytes counts the bytes fetched of a layer, in however many attempts.
type stagedBytes struct {
	Layer string `json:"layer"`
	spec.Bytes
}

// noteBytes adds the images that an attempt brought to those of the attempts before.
func (d *Destination) noteBytes(ctx context.Context, layer string, b spec.Bytes) error {
	if b == (spec.Bytes{}) {
		return nil
	}
	beside, err := os.OpenFile(d.path(paths.RunStaged+".lock"), os.O_RDWR|os.O_CREATE, 0o600) // a verb may stage beside the service
	if err != nil {
		return err
	}
	defer beside.Close() // it ends the lock, nothing is written through it
	if err := stall.Lock(ctx, beside, false); err != nil {
		return fmt.Errorf("lock %s: %w", beside.Name(), err)
	}
	if before := d.BytesOf(layer); before != nil {
		b.Fetched, b.Had = b.Fetched+before.Fetched, b.Had+before.Had
	}
	data, _ := spec.Encode(stagedBytes{layer, b}) // a text and numbers marshal
	return durable.WriteFile(d.path(paths.RunStaged), data, 0o640)
}

// BytesOf returns the bytes that this service fetched of a layer; nil where it fetched none.
func (d *Destination) BytesOf(layer string) *spec.Bytes {
	var s stagedBytes
	data, err := os.ReadFile(d.path(paths.RunStaged))
	if err != nil || json.Unmarshal(data, &s) != nil || s.Layer != layer {
		return nil // a figure for people: what cannot be read is not shown
	}
	return &s.Bytes
}

// fitsMemory is the class of a soft-reboot into a root some of whose images have yet to be
// brought into memory.
func (d *Destination) fitsMemory(next *root.Next, class, why string) (string, string, error) {
	if len(next.Missing) == 0 {
		return class, why, nil
	}
	has, err := stage.ReadMemory(d.path("/proc/meminfo"))
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
	if g := d.nextBoot(s); g == nil || g.Layer == d.Owner.Boot().Generation.Layer {
		return nil
	}
	release, err := stage.Begin(d.path(paths.RunStaging)) // nothing is freed meanwhile
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
		to := stage.Stager{Bytes: &bytes, Store: next.Store, From: d.Tracker.Source, Kept: []string{d.Root.Layer()}, Talk: 10 * time.Minute,
			Say: d.Log.Say}
		if err = to.Missing(ctx, stage.Images(*next.Pair.Layer)...); err == nil {
			return d.noteBytes(ctx, next.Pair.Generation.Layer, bytes)
		}
		err = fmt.Errorf("stage generation %d: %w", next.Pair.Generation.Generation, err)
	}
	return errors.Join(err, d.giveUp(s, next))
}

// giveUp frees the memory of images that only a root has which is not gone to.
func (d *Destination) giveUp(s *state.State, next *root.Next) error {
	others := []*state.Generation{&d.Owner.Boot().Generation}
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

// collect deletes what no layer needs that runs, is stacked, ran well and is kept, or
// waits. The manifests in the store say what that is; where one cannot be read nothing is
// deleted. That of what waits, or ran well before the one before, may be missing. Memory is
// spent on less, see keepInMemory.
func (d *Destination) collect(s *state.State) error {
	boot := d.Owner.Boot()
	if boot.Mode == spec.ModeAttached {
		return nil
	}
	store, err := d.Store()
	if err != nil {
		return err
	}
	here, perhaps := []*state.Generation{s.Current, s.Previous, &boot.Generation, {Layer: boot.Live.Stacked}}, []*state.Generation{s.Staged}
	for _, g := range s.Earlier {
		perhaps = append(perhaps, &g)
	}
	if boot.InMemory() {
		here, perhaps = d.stackedOnly(), append(d.keepInMemory(s), &boot.Generation)
	}
	keep, err := needed(store, here, perhaps)
	if err != nil {
		return err
	}
	d.Services.Keep(keep)
	freed, err := store.Collect(keep)
	if freed > 0 {
		d.Log.Say("freed %.1f MB of layers that no boot needs any more", float64(freed)/1e6)
	}
	return err
}

// needed lists the blobs of layers that are in the store, and of those that may be.
func needed(store *layers.Store, here, perhaps []*state.Generation) (map[string]bool, error) {
	keep := map[string]bool{}
	for i, g := range append(here, perhaps...) {
		if g == nil || g.Layer == "" {
			continue
		}
		blobs, err := needs(store, g.Layer)
		if i >= len(here) && errors.Is(err, fs.ErrNotExist) {
			continue // it is fetched when it is gone to
		}
		if err != nil {
			return nil, err
		}
		for _, digest := range blobs {
			keep[digest] = true
		}
	}
	return keep, nil
}

// needs lists the layer's manifest and all that it leads to.
func needs(store *layers.Store, layer string) ([]string, error) {
	raw, err := store.Get(layer, oci.MaxManifest)
	if err != nil {
		return nil, err
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		return nil, err
	}
	return append([]string{layer, m.Config.Digest}, plain.Each(m.Layers, func(d oci.Descriptor) string { return d.Digest })...), nil
}

// stackedOnly is the layer that this root is made of.
func (d *Destination) stackedOnly() []*state.Generation {
	return []*state.Generation{{Layer: d.Root.Layer()}}
}

// keepInMemory returns the generations whose layers stay in memory beside that of this root: the one
// that a change which does not prove itself is taken back to, and the one that waits.
func (d *Destination) keepInMemory(s *state.State) []*state.Generation {
	list := []*state.Generation{s.Current}
	if d.Tracker == nil {
		return list
	}
	return append(list, d.nextBoot(s))
}

// FreeMemory gives back the memory of layers that nobody goes to any more.
func (d *Destination) FreeMemory() {
	if staging, _ := stage.Runs(d.path(paths.RunStaging)); staging || !d.Owner.Boot().InMemory() || d.Tracker == nil {
		return
	}
	s, err := d.Owner.State()
	if err == nil {
		err = d.collect(s)
	}
	fault.Say(d.Log.Say, fault.In(err, "clean up"))
}

// Tidy deletes what no state names any more. What is left over costs room only.
func (d *Destination) Tidy(s *state.State) {
	err := errors.Join(d.Folder.CollectOverlays(s, append(d.Effect.Reverting(), d.Services.Serving()...)...), d.collect(s))
	fault.Say(d.Log.Say, fault.In(err, "clean up"))
}
