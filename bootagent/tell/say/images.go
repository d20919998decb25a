// SPDX-License-Identifier: Apache-2.0

package say

import (
	"cmp"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// CorruptImage is what is wrong with an image of which a block is not what was signed.
const CorruptImage = "a block of it is not what was signed, and reading it fails (EIO)"

// imageCheck says how images are checked.
func (v *View) imageCheck() (how spec.ImageCheck, why string) {
	if checks := v.Boot.Images; len(checks.WhenRead) == 0 || checks.Why != "" {
		return spec.ImagesAtBoot, cmp.Or(checks.Why, "the loader of this boot does not do that")
	}
	return spec.ImagesWhenRead, ""
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
