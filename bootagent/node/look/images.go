// SPDX-License-Identifier: Apache-2.0

package look

import (
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/say"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
)

// noteImages asks the kernel what it has met in the images that it checks while they are
// read. The next boot need not read those in which it found nothing wrong; the others it
// reads, and fetches again where their files differ.
func (l *Look) noteImages(g state.Generation) {
	live := &l.Boot.Live
	if len(l.Boot.Images.WhenRead) == 0 || l.Lock == nil {
		return
	}
	ask := l.Options.Corrupt
	if ask == nil {
		ask = layers.Corrupt
	}
	corrupt, err := ask()
	if err != nil {
		l.Say("ask the kernel about the images: %v", err)
		return
	}
	var sound []string
	for _, image := range l.Boot.Images.WhenRead {
		switch {
		case slices.Contains(live.Corrupt, image):
		case slices.Contains(corrupt, image):
			live.Corrupt = append(live.Corrupt, image)
			name := say.ImageName(&l.Boot.Layer, image)
			why := fmt.Sprintf("image %s (%s): %s", name, image, say.CorruptImage)
			l.Say("%s", why)
			l.Note(g, nil, spec.Event{Event: spec.EventCorrupt, Item: "image", Key: name, Errno: "EIO", Why: why, Did: "goes on, and has the next boot read all of it"})
		default:
			sound = append(sound, image)
		}
	}
	if slices.Equal(sound, live.Sound) {
		return
	}
	store, err := l.Store()
	if err == nil {
		err = store.KeepSound(sound)
	}
	if err != nil {
		l.Say("the next boot reads all images: %v", err)
		return
	}
	live.Sound = sound
}
