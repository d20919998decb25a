// SPDX-License-Identifier: Apache-2.0

package image

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What a process has read of a tree is told while it runs, and never more than
// there is.
func TestWatch(t *testing.T) {
	tree := t.TempDir()
	if err := os.WriteFile(filepath.Join(tree, "file"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	told := make(chan [2]int64, 100)
	stop := watch(os.Getpid(), tree, func(read, of, _ int64) { told <- [2]int64{read, of} })
	if _, err := os.ReadFile(filepath.Join(tree, "file")); err != nil { // this process plays mksquashfs
		t.Fatal(err)
	}
	select {
	case got := <-told:
		if got != [2]int64{1 << 20, 1 << 20} {
			t.Errorf("told %v", got)
		}
	case <-time.After(5 * time.Minute):
		t.Error("nothing was told")
	}
	stop()
	if n, _, ok := bytesMoved(-1); ok {
		t.Errorf("no process has read %d bytes", n)
	}
}
