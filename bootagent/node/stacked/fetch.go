// SPDX-License-Identifier: Apache-2.0

package stacked

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch/download"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"golang.org/x/sys/unix"
)

// Bring fetches what this root needs of a layer that differs in accounts only, and
// what a boot needs where there is a disk. What cannot be had now is tried again.
func (r *Root) Bring(ctx context.Context, layer string) {
	boot := r.Owner.Boot()
	if layer == "" || layer == layerOf(boot) || boot.Mode == spec.ModeAttached || r.layers[layer] != nil || boot.Layer.Accounted() == nil {
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
	if !r.Alone { // who only looks keeps nothing
		dir, err := os.MkdirTemp("", "caisson-layer-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) // what is left is in the temporary directory
		if store, err = layers.OpenStore(dir); err != nil {
			return err
		}
	}
	boot := r.Owner.Boot()
	s := stage.Stager{Store: store, From: r.Tracker.Source, Kept: []string{layerOf(boot)}, Talk: 10 * time.Second, Say: r.Say}
	to, err := s.Describe(ctx, layer)
	if err != nil {
		return err
	}
	if class, _ := spec.LayerMove(&boot.Layer, &to); !spec.Live(class) {
		return nil // it is staged as others are
	}
	if err := trust.ForMachine(to, r.Tracker.Bootstrap, runtime.GOARCH); err != nil {
		return err
	}
	parts := stage.Images(to)
	if r.Alone && boot.Disk != "" && !boot.ReadOnly { // all else is here, as it is the same
		if err := s.Missing(ctx, append(parts, stage.Kernel(to)...)...); err != nil {
			return err
		}
	}
	i := slices.IndexFunc(parts, func(p stage.Part) bool { return p.Name == spec.ImageAccounts })
	if err := s.Verified(ctx, parts[i]); err != nil || r.Alone {
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

// compareAccounts compares the accounts of a layer with those that are stacked.
func (r *Root) compareAccounts(store *layers.Store, layer string) (*Beside, error) {
	boot := r.Owner.Boot()
	ctx, end := context.WithTimeout(context.Background(), download.FetchTime)
	defer end()
	to, err := stage.Stager{Store: store, Talk: download.FetchTime, Say: r.Say}.Describe(ctx, layer)
	if err != nil {
		return nil, otherLayer(spec.EffectOf(spec.PartLayer).Why) // what it is has not come yet
	}
	if class, _ := spec.LayerMove(&boot.Layer, &to); !spec.Live(class) {
		return nil, otherLayer(spec.EffectOf(spec.PartLayer).Why)
	}
	own, err := r.Store()
	if err != nil {
		return nil, err
	}
	from, err := r.showAccounts(own, &boot.Layer, "from")
	if err != nil {
		return nil, err
	}
	defer from.leave()
	next, err := r.showAccounts(store, &to, "to")
	if err != nil {
		return nil, err
	}
	defer next.leave()
	below, err := r.below(&boot.Layer)
	if err != nil {
		return nil, err
	}
	changes, err := accounts.Difference(from.at, next.at, below)
	if err != nil {
		return nil, otherLayer("its accounts cannot be put over the running root: " + err.Error())
	}
	return &Beside{r.ID, to.Version, changes}, nil
}

// below are the directories on which the images under the stacked accounts are mounted. A
// root that was made by a soft-reboot has none of them.
func (r *Root) below(l *spec.Layer) (dirs []string, err error) {
	for i, image := range l.Images {
		if image.Name == spec.ImageAccounts {
			break
		}
		dir := filepath.Join(r.Dir, paths.RunImages, fmt.Sprint(i))
		if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
			return nil, otherLayer("the images under its accounts are not mounted, so nothing can be compared with them")
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// mounted is an image of accounts that is mounted for a moment.
type mounted struct {
	at  string
	say func(format string, args ...any)
}

func (r *Root) showAccounts(store *layers.Store, l *spec.Layer, as string) (*mounted, error) {
	image := l.Accounted()
	if err := store.Verify(image.Digest); err != nil {
		return nil, fmt.Errorf("the accounts of layer %s: %w", l.Version, err)
	}
	if !r.Alone { // others may look at the same time
		as = fmt.Sprintf("%s-%d", as, os.Getpid())
	}
	at := filepath.Join(r.Dir, paths.RunAccounts, as)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, err
	}
	for unix.Unmount(at, unix.MNT_DETACH) == nil { // one who mounted it was killed
	}
	if err := (layers.Image{Path: store.Path(image.Digest), Type: image.MediaType}).Mount(at); err != nil {
		return nil, err
	}
	return &mounted{at, r.Say}, nil
}

func (m *mounted) leave() {
	if err := errors.Join(unix.Unmount(m.at, unix.MNT_DETACH), os.Remove(m.at)); err != nil {
		m.say("unmount accounts: %v", err) // the next one who looks unmounts it
	}
}
