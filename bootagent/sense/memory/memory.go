// SPDX-License-Identifier: Apache-2.0

// Package memory says whether images fit into a machine that has no disk for them.
//
// It counts bytes and reads proc_meminfo(5). What is done about images that do not fit is
// the business of who brings them.
package memory

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// Memory is that of a machine which has its images in it, in bytes.
type Memory struct{ Total, Available int64 }

// leastReserve is what is left to the programs of a small machine.
const leastReserve = 128 << 20

// reserve is what images never take: programs may need it while a layer waits. It is more
// than the tenth of memory that /run leaves, so a fetch does not end for want of room there.
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
	return fmt.Sprintf("both layers do not fit into memory: the new images have %.1f MB, and of %.1f MB that are available %.1f MB are kept for what runs",
		float64(need)/mb, float64(m.Available)/mb, float64(m.reserve())/mb)
}

// maxMeminfo is more than any kernel writes, in bytes.
const maxMeminfo = 64 << 10

// Read reads a file as proc_meminfo(5) has it.
func Read(name string) (m Memory, err error) {
	f, err := os.Open(name)
	if err != nil {
		return m, err
	}
	defer f.Close() // only read
	text, err := io.ReadAll(io.LimitReader(f, maxMeminfo))
	if err != nil {
		return m, fmt.Errorf("read %s: %w", name, err)
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
