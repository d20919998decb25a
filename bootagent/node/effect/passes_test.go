// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"fmt"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"
)

// A change that met a full disk is tried again by itself: with room again it is well.
func TestWhatPassesIsNotHeldAgainstAChange(t *testing.T) {
	for err, want := range map[error]bool{unix.EBUSY: true, unix.ENOSPC: true, unix.EROFS: true, unix.EIO: true, unix.EINVAL: false, unix.EPERM: false} {
		if got := Passes(fmt.Errorf("write journal: %w", &fs.PathError{Op: "write", Path: "journal", Err: err})); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
