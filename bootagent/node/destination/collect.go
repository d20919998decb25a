// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"errors"
	"io/fs"

	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

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

// manifestOf reads the manifest of a layer that is in the store.
func manifestOf(store *layers.Store, layer string) (*oci.Manifest, error) {
	raw, err := store.Get(layer, oci.MaxManifest)
	if err != nil {
		return nil, err
	}
	return oci.ParseManifest(raw)
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
	m, err := manifestOf(store, layer)
	if err != nil {
		return nil, err
	}
	list := []string{layer, m.Config.Digest}
	for _, d := range m.Layers {
		list = append(list, d.Digest)
	}
	return list, nil
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
	if err != nil {
		d.Log.Say("clean up: %v", err)
	}
}

// Tidy deletes what no state names any more. What is left over costs room only.
func (d *Destination) Tidy(s *state.State) {
	if err := errors.Join(d.Folder.CollectOverlays(s, append(d.Effect.Reverting(), d.Services.Serving()...)...), d.collect(s)); err != nil {
		d.Log.Say("clean up: %v", err)
	}
}
