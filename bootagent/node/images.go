// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/bootagent/say"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
)

// noteImages asks the kernel what it has met in the images that it checks while they are
// read. The next boot need not read those in which it found nothing wrong; the others it
// reads, and fetches anew where their files differ.
func (n *Node) noteImages(g state.Generation) {
	live := &n.boot.Live
	if len(n.boot.Images.WhenRead) == 0 || n.lock == nil {
		return
	}
	ask := n.o.Corrupt
	if ask == nil {
		ask = layers.Corrupt
	}
	corrupt, err := ask()
	if err != nil {
		n.say("ask the kernel about the images: %v", err)
		return
	}
	var sound []string
	for _, image := range n.boot.Images.WhenRead {
		switch {
		case slices.Contains(live.Corrupt, image):
		case slices.Contains(corrupt, image):
			live.Corrupt = append(live.Corrupt, image)
			name := say.ImageName(&n.boot.Layer, image)
			why := fmt.Sprintf("image %s (%s): %s", name, image, say.CorruptImage)
			n.say("%s", why)
			n.note(g, nil, spec.Event{Event: spec.EventCorrupt, Item: "image", Key: name, Errno: "EIO", Why: why, Did: "goes on, and has the next boot read all of it"})
		default:
			sound = append(sound, image)
		}
	}
	if slices.Equal(sound, live.Sound) {
		return
	}
	store, err := n.store()
	if err == nil {
		err = store.KeepSound(sound)
	}
	if err != nil {
		n.say("the next boot reads all images: %v", err)
		return
	}
	live.Sound = sound
}
