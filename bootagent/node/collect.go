// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"io/fs"

	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// collect deletes what no layer needs that runs, is stacked, ran well and is kept, or
// waits. The manifests in the store say what that is; where one cannot be read nothing is
// deleted. That of what waits, or ran well before the one before, may be missing. Memory is
// spent on less, see worth.
func (n *Node) collect(s *state.State) error {
	if n.boot.Mode == spec.ModeAttached {
		return nil
	}
	store, err := n.store()
	if err != nil {
		return err
	}
	here, perhaps := []*state.Generation{s.Current, s.Previous, &n.boot.Generation, {Layer: n.boot.Live.Stacked}}, []*state.Generation{s.Staged}
	for _, g := range s.Earlier {
		perhaps = append(perhaps, &g)
	}
	if n.inMemory() {
		here, perhaps = n.stackedOnly(), append(n.worth(s), &n.boot.Generation)
	}
	keep, err := needed(store, here, perhaps)
	if err != nil {
		return err
	}
	n.keepServices(keep)
	freed, err := store.Collect(keep)
	if freed > 0 {
		n.say("freed %.1f MB of layers that no boot needs any more", float64(freed)/1e6)
	}
	return err
}

func (n *Node) store() (*layers.Store, error) {
	if n.boot.Disk == "" {
		return layers.OpenStore(n.path(paths.RunStore))
	}
	return layers.OpenStore(n.folder.Path("store"))
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
