// SPDX-License-Identifier: Apache-2.0

// Package stalled mounts a file system whose server says nothing, as that of a file server
// that is gone: a look at a file there waits. Only tests import it.
package stalled

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/require"
)

// Dir returns a directory below which every name hangs until the test is over.
func Dir(t testing.TB) string {
	t.Helper()
	require.Root(t)
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		require.Missing(t, "fuse", fmt.Sprintf("open /dev/fuse: %v", err))
	}
	dir, err := os.MkdirTemp("", "stalled")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("stalled", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		_ = unix.Close(fd) // nothing is mounted
		_ = os.Remove(dir) // it is empty
		require.Missing(t, "fuse", fmt.Sprintf("mount: %v", err))
	}
	t.Cleanup(func() {
		if err := unix.Close(fd); err != nil { // who waits gets an error
			t.Error(err)
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		// What hung goes on, and may still make something below the name.
		for late := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if err = os.RemoveAll(dir); err == nil || time.Now().After(late) {
				break
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
	return dir
}
