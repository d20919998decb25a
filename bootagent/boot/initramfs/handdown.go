// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"os"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// handDown is the bootstrap as the layer's agent, or its loader behind a kexec, reads it: the
// file as it is, or what a release is left with that does not know all of it. One that does
// not follow the chain of keys is given those that count now, at each boot.
func (b *boot) handDown(layer *spec.Layer) ([]byte, error) {
	if spec.Missing(b.bootstrap.Needs, layer.Features) == nil {
		return os.ReadFile(paths.Bootstrap)
	}
	return spec.Encode(b.follower().Trusted().Without(layer.Features))
}
