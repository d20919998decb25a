// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// Memory is that of a machine which has its images in it, in bytes. It says whether more of them
// fit; what is done about those that do not is the business of who brings them.
type Memory struct{ Total, Available int64 }

// leastReserve is the memory left to the programs of a small machine.
const leastReserve = 128 << 20

// reserve returns the memory that images never take: programs may need it while a layer waits. It
// is more than the tenth of memory that /run leaves, so a fetch does not end for want of room
// there.
func (m Memory) reserve() int64 { return max(m.Total/8, leastReserve) }

// Refuses says why images cannot be brought into memory beside those that are there, ""
// where they can. The descriptions that it is given are verified, so each size has its cap.
func (m Memory) Refuses(missing []spec.Blob) string {
	var need int64
	for _, b := range missing {
		need += b.Size
	}
	if need == 0 || need <= m.Available-m.reserve() {
		return ""
	}
	const mb = 1e6
	return fmt.Sprintf("both layers do not fit into memory: the new images have %.1f MB, and of %.1f MB that are "+
		"available %.1f MB are kept for what runs",
		float64(need)/mb, float64(m.Available)/mb, float64(m.reserve())/mb)
}

// maxMeminfo is more than any kernel writes, in bytes.
const maxMeminfo = 64 << 10

// ReadMemory reads a file as proc_meminfo(5) has it.
func ReadMemory(name string) (m Memory, err error) {
	text, err := ownfiles.ReadPublic(name, maxMeminfo)
	if err != nil {
		return m, err
	}
	for _, w := range []struct {
		key string
		to  *int64
	}{{"MemTotal:", &m.Total}, {"MemAvailable:", &m.Available}} {
		_, rest, _ := strings.Cut(string(text), w.key)
		if _, err := fmt.Sscanf(rest, "%d kB", w.to); err != nil {
			return m, fmt.Errorf("read %s: %s %w", name, w.key, err)
		}
		*w.to <<= 10
	}
	return m, nil
}

// ForStart is the memory that a boot leaves to the root beside the images, in bytes: with less,
// systemd and the agent do not come up. What a root has for its own work comes on top.
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
	return fmt.Sprintf("too little memory: the layer has %.1f MB of images to keep in memory; for that this machine "+
		"needs %d MiB, and it has %d",
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
