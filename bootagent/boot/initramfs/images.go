// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"

	"github.com/caisson-os/caisson/bootagent/boot/root"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
)

// takeTrees says why this boot's images are not checked while they are read. Where they are, it
// has the boot after this one read all images, unless the agent says before that this
// one was good.
func (b *boot) takeTrees() (*stage.Trees, error) {
	if err := b.cannotCheck(); err != nil {
		return nil, err
	}
	if b.trees == nil {
		sound, err := b.store.TakeSound()
		if err != nil {
			b.say("all images are read: %v", err)
		}
		b.trees = &stage.Trees{Sound: sound}
	}
	return b.trees, nil
}

func (b *boot) cannotCheck() error {
	switch {
	case b.disk == "":
		return root.ErrInMemory
	case b.readOnly != nil:
		return errors.New("the state disk can only be read")
	case b.canCheck != nil:
		return b.canCheck()
	}
	if err := b.modules.Load("dm_verity"); err != nil { // which no device asks for
		return err
	}
	return layers.CanCheck()
}

// readAll reads all images of a layer and fetches again what differs, since the kernel found
// fault with one of them when it was mounted.
func (b *boot) readAll(layer *spec.Layer, why error) error {
	b.trouble("images are not checked while they are read: %v", why)
	b.progress.Made()
	ctx, cancel := context.WithTimeout(context.Background(), b.limits.only)
	defer cancel()
	return b.stager(b.source).Verified(ctx, stage.Images(*layer)...)
}
