// SPDX-License-Identifier: Apache-2.0

package stacked

import (
	"context"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch/download"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// Bring fetches what this root needs of a layer that differs in accounts only, and
// what a boot needs where there is a disk. What cannot be had now is tried again.
func (r *Root) Bring(ctx context.Context, layer string) {
	if layer == "" || layer == r.Layer() || r.Boot.Mode == spec.ModeAttached || r.layers[layer] != nil || r.Boot.Layer.Accounted() == nil {
		return
	}
	if b, err := r.keptBeside(layer); err == nil && b != nil {
		return
	}
	if err := r.FetchLayer(ctx, layer); err != nil {
		r.Say("layer %s: %v", layer, err)
	}
}

// FetchLayer fetches what this root, and a boot of it, needs of a layer.
func (r *Root) FetchLayer(ctx context.Context, layer string) error {
	ctx, end := context.WithTimeout(ctx, download.FetchTime)
	defer end()
	store, err := r.Store()
	if err != nil {
		return err
	}
	if r.Lock == nil { // who only looks keeps nothing
		dir, err := os.MkdirTemp("", "caisson-layer-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) // what is left is in the temporary directory
		if store, err = layers.OpenStore(dir); err != nil {
			return err
		}
	}
	s := stage.Stager{Store: store, From: r.Tracker.Source, Kept: []string{r.Layer()}, Talk: 10 * time.Second, Say: r.Say}
	to, err := s.Describe(ctx, layer)
	if err != nil {
		return err
	}
	if class, _ := spec.LayerMove(&r.Boot.Layer, &to); !spec.Live(class) {
		return nil // it is staged as others are
	}
	if err := trust.ForMachine(to, r.Tracker.Bootstrap, runtime.GOARCH); err != nil {
		return err
	}
	parts := stage.Images(to)
	if r.Lock != nil && r.Boot.Disk != "" && !r.Boot.ReadOnly { // all else is here, as it is the same
		if err := s.Missing(ctx, append(parts, stage.Kernel(to)...)...); err != nil {
			return err
		}
	}
	i := slices.IndexFunc(parts, func(p stage.Part) bool { return p.Name == spec.ImageAccounts })
	if err := s.Verified(ctx, parts[i]); err != nil || r.Lock != nil {
		return err
	}
	b, err := r.compareAccounts(store, layer)
	if err != nil {
		return err
	}
	if r.layers == nil {
		r.layers = map[string]*Beside{}
	}
	r.layers[layer] = b
	return nil
}
