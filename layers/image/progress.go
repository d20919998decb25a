// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// look is how often it is asked how far mksquashfs has come.
const look = 500 * time.Millisecond

// watch tells how much of the tree a process has read, until what it returns is
// called. It goes by the kernel's account of the process, because mksquashfs says
// nothing of use to programs; where that cannot be read nothing is told.
func watch(pid int, tree string, tell func(read, of, written int64)) (stop func()) {
	if tell == nil {
		return func() {}
	}
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		of := sizeOf(tree)
		tick := time.NewTicker(look)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if n, written, ok := bytesMoved(pid); ok && of > 0 {
					tell(min(n, of), of, written)
				}
			}
		}
	}()
	return func() { close(done); <-gone }
}

// sizeOf returns the bytes of a tree's files, or of those that can be looked at.
func sizeOf(tree string) (n int64) {
	_ = filepath.WalkDir(tree, func(_ string, d fs.DirEntry, err error) error { // an estimate: mksquashfs says what is wrong
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// bytesMoved returns rchar and wchar of proc_pid_io(5).
func bytesMoved(pid int) (read, written int64, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, 0, false
	}
	n, err := fmt.Sscanf(string(data), "rchar: %d\nwchar: %d\n", &read, &written)
	return read, written, err == nil && n == 2
}
