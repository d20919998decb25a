// SPDX-License-Identifier: Apache-2.0

package stacked

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/caisson-os/caisson/bootagent/fetch/download"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
	"golang.org/x/sys/unix"
)

// compareAccounts compares the accounts of a layer with those that are stacked.
func (r *Root) compareAccounts(store *layers.Store, layer string) (*Beside, error) {
	ctx, end := context.WithTimeout(context.Background(), download.FetchTime)
	defer end()
	to, err := stage.Stager{Store: store, Talk: download.FetchTime, Say: r.Say}.Describe(ctx, layer)
	if err != nil {
		return nil, otherLayer(spec.EffectOf(spec.PartLayer).Why) // what it is has not come yet
	}
	if class, _ := spec.LayerMove(&r.Boot.Layer, &to); !spec.Live(class) {
		return nil, otherLayer(spec.EffectOf(spec.PartLayer).Why)
	}
	own, err := r.Store()
	if err != nil {
		return nil, err
	}
	from, err := r.showAccounts(own, &r.Boot.Layer, "from")
	if err != nil {
		return nil, err
	}
	defer from.leave()
	next, err := r.showAccounts(store, &to, "to")
	if err != nil {
		return nil, err
	}
	defer next.leave()
	below, err := r.below()
	if err != nil {
		return nil, err
	}
	changes, err := accounts.Difference(from.at, next.at, below)
	if err != nil {
		return nil, otherLayer("its accounts cannot be put over the running root: " + err.Error())
	}
	return &Beside{r.Scopes.Root, to.Version, changes}, nil
}

// below are the directories on which the images under the stacked accounts are mounted. A
// root that was made by a soft-reboot has none of them.
func (r *Root) below() (dirs []string, err error) {
	for i, image := range r.Boot.Layer.Images {
		if image.Name == spec.ImageAccounts {
			break
		}
		dir := filepath.Join(r.Path(paths.RunImages), fmt.Sprint(i))
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
	if r.Lock == nil { // others may look at the same time
		as = fmt.Sprintf("%s-%d", as, os.Getpid())
	}
	at := filepath.Join(r.Path(paths.RunAccounts), as)
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
