// SPDX-License-Identifier: Apache-2.0

package say

import (
	"cmp"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// CorruptImage is what is wrong with an image of which a block is not what was signed.
const CorruptImage = "a block of it is not what was signed, and reading it fails (EIO)"

// setImages says how images are checked, and which of them are not what was signed.
func (v *View) setImages(st *spec.Status, refuse func(item, key, reason string)) {
	if !v.boots() {
		return
	}
	st.ImageCheck = spec.ImagesWhenRead
	if checks := v.Boot.Images; len(checks.WhenRead) == 0 || checks.Why != "" {
		st.ImageCheck, st.ImageCheckDetail = spec.ImagesAtBoot, cmp.Or(checks.Why, "the loader of this boot does not do that")
	}
	for _, image := range v.Boot.Live.Corrupt {
		refuse("image", ImageName(&v.Boot.Layer, image), CorruptImage)
	}
}

// ImageName is what people call an image of a layer.
func ImageName(l *spec.Layer, image string) string {
	for _, i := range l.Images {
		if i.Digest == image {
			return i.Name
		}
	}
	return digest.Hex(image)
}
