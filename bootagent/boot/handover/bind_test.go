// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// While the root of a soft-reboot is made, users go on: whose directory is on the way to
// a persisted one has nothing mounted in another place, whenever a link is put there.
func TestBindWhileAUserActs(t *testing.T) {
	n := newNode(t, t.TempDir(), true)
	elsewhere, from := t.TempDir(), t.TempDir()
	kept, link := n.path("/home/admin/kept"), n.path("/home/admin/link")
	if err := errors.Join(os.Mkdir(kept, 0o755), os.Symlink(elsewhere, link), os.WriteFile(filepath.Join(from, "mine"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	end := exchange(kept, link)
	bound := 0
	for range 5000 {
		if err := n.bind(from, "/home/admin/kept"); err == nil {
			bound++
		}
		if _, err := os.Lstat(filepath.Join(elsewhere, "mine")); err == nil {
			t.Error("it is mounted where the link leads to")
			break
		}
		for _, at := range []string{kept, link} {
			if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL {
				t.Fatal(err)
			}
		}
	}
	end()
	_ = unix.Unmount(elsewhere, unix.MNT_DETACH) // of a test that failed
	if bound == 0 {
		t.Error("it was never mounted: this shows nothing")
	}
	t.Logf("%d of 5000 were mounted", bound)
}

// What an overlay keeps that was signed before a place was reserved is said, and not kept.
func TestReservedPlacesAreNotKept(t *testing.T) {
	n := newNode(t, t.TempDir(), true)
	var said []string
	n.Say = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	n.Overlay.Persist = []string{"/etc/caisson", "/var/lib/caisson/store", "/usr", "/home"}
	if err := n.persist(); err != nil {
		t.Fatal(err)
	}
	if len(said) != 3 || !strings.Contains(strings.Join(said, "\n"), "/etc/caisson is not kept") {
		t.Errorf("%q", said)
	}
	if _, err := os.Lstat(n.State.Path("persist", "etc")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("kept: %v", err)
	}
}
