// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// giveBack returns to the kernel what a look took and the minute after it does not need:
// memory, and pages of the program, of which most were read by its start alone. What the
// next look needs of them is still in the page cache.
func giveBack() error {
	debug.FreeOSMemory()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil {
			return fmt.Errorf("read /proc/self/maps: %q: %w", line, err)
		}
		if !strings.HasSuffix(line, " "+program+"\n") || mode[1] == 'w' { // what was written is nowhere else
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise %s: %w", program, errno)
		}
	}
	return nil
}
