// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"

	"github.com/caisson-os/caisson/spec"
)

// ForStart is what a boot leaves to the root beside the images, in bytes: with less, systemd
// and the agent do not come up. What a root has for its own work comes on top.
const ForStart = 96 << 20

// varies is how much less may be available at the next boot of the same machine: two boots of one
// layer differed by some MiB, and who gives a machine what it lacks is not sent for more.
const varies = 8 << 20

// TooLittle is the error of a boot whose images do not fit into memory.
type TooLittle struct {
	Images int64 // what they have, in bytes
	Has    int64 // the machine's memory as its kernel counts it
	Needs  int64 // with how much the boot would have been begun
}

func (e *TooLittle) Error() string {
	return fmt.Sprintf("too little memory: the layer has %.1f MB of images to keep in memory; for that this machine needs %d MiB, and it has %d",
		float64(e.Images)/1e6, mebibytes(e.Needs), e.Has>>20)
}

// More is how much memory the machine lacks, in MiB.
func (e *TooLittle) More() int64 { return mebibytes(e.Needs) - e.Has>>20 }

// Boots says whether a root comes up whose missing images are brought into memory first: nil,
// or a [TooLittle].
func (m Memory) Boots(missing []spec.Blob) error {
	var images int64
	for _, b := range missing {
		images += b.Size
	}
	if lacks := images + ForStart - m.Available; images > 0 && lacks > 0 {
		// More memory makes the kernel keep more of it.
		return &TooLittle{Images: images, Has: m.Total, Needs: m.Total + lacks + lacks/8 + varies}
	}
	return nil
}

func mebibytes(n int64) int64 { return (n + 1<<20 - 1) >> 20 }
