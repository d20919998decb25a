// SPDX-License-Identifier: Apache-2.0

package safepath

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBeneathOnABusyMachine: a link up and down again is followed while somebody renames
// files somewhere else.
func TestBeneathOnABusyMachine(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "class/x"), 0o755), os.MkdirAll(filepath.Join(root, "devices/x"), 0o755),
		os.Symlink("../../devices/x", filepath.Join(root, "class/x/link")), os.WriteFile(filepath.Join(root, "devices/x/value"), nil, 0o644),
		os.Symlink("../../..", filepath.Join(root, "class/x/out")), os.WriteFile(filepath.Join(elsewhere, "a"), nil, 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close() // only held
	var renamed atomic.Int64
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for from, to := "a", "b"; ; from, to = to, from {
			select {
			case <-stop:
				close(stopped)
				return
			default:
			}
			if err := os.Rename(filepath.Join(elsewhere, from), filepath.Join(elsewhere, to)); err != nil {
				stopped <- err
				return
			}
			renamed.Add(1)
		}
	}()
	for opened := 0; len(stopped) == 0 && (opened < 20_000 || renamed.Load() < 20_000); opened++ {
		fd, err := Beneath(int(dir.Fd()), "class/x/link/value", unix.O_RDONLY, 0)
		if err != nil {
			t.Error(err)
			break
		}
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
	if fd, err := Beneath(int(dir.Fd()), "class/x/out", unix.O_PATH, 0); !errors.Is(err, unix.EXDEV) {
		t.Errorf("a link that leads out is followed: %d, %v", fd, err)
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}
