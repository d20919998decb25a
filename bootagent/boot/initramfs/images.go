// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"

	"github.com/caisson-os/caisson/bootagent/stage"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
)

// checkImages brings a layer's images into the store, and notes how what is read of them
// is compared with what was signed.
func (b *boot) checkImages(ctx context.Context, staged stage.Stager, layer spec.Layer) (err error) {
	why := b.cannotCheck(layer)
	if why == nil {
		staged.Trees = b.takeTrees()
	}
	parts := stage.Images(layer)
	if b.whenRead, err = staged.Checked(ctx, parts...); err != nil {
		return err
	}
	b.record.Images = state.Images{}
	for _, part := range parts {
		if _, ok := b.whenRead[part.Digest]; ok {
			b.record.Images.WhenRead = append(b.record.Images.WhenRead, part.Digest)
		} else if why == nil {
			why = errors.New("the hash tree of " + part.Name + " could not be used")
		}
	}
	if why != nil {
		b.record.Images.Why = why.Error()
	}
	return nil
}

// cannotCheck says why this boot's images are not checked while they are read.
func (b *boot) cannotCheck(layer spec.Layer) error {
	switch {
	case b.disk == "":
		return errors.New("they are in memory")
	case b.readOnly != nil:
		return errors.New("the state disk can only be read")
	case len(layer.Roots) == 0:
		return errors.New("the release that built this layer made no hash trees")
	case b.canCheck != nil:
		return b.canCheck()
	}
	if err := b.modules.Load("dm_verity"); err != nil { // which no device asks for
		return err
	}
	return layers.CanCheck()
}

// takeTrees has the boot after this one read all images, unless the agent says before
// that this one was good.
func (b *boot) takeTrees() *stage.Trees {
	if b.trees == nil {
		sound, err := b.store.TakeSound()
		if err != nil {
			b.say("all images are read: %v", err)
		}
		b.trees = &stage.Trees{Sound: sound}
	}
	return b.trees
}

// readAll reads all images of a layer and fetches anew what differs, since the kernel found
// fault with one of them when it was mounted: of what it was to check it checks nothing.
func (b *boot) readAll(layer *spec.Layer, why error) error {
	b.trouble("images are not checked while they are read: %v", why)
	b.progress.Made()
	b.record.Images = state.Images{Why: why.Error()}
	ctx, cancel := context.WithTimeout(context.Background(), b.limits.only)
	defer cancel()
	return b.stager(b.source).Verified(ctx, stage.Images(*layer)...)
}
