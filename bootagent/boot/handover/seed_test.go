// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// exchange has a user put one name in the place of another, again and again, until the
// function that it returns ends that.
func exchange(a, b string) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				// It fails while something is mounted there.
				_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// seedTree brings over from's directories that to lacks.
func (n *Node) seedTree(from, to string) error {
	above, err := hold(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer above.Close() // only held
	return n.seedFrom(from, above, filepath.Base(to))
}

// What cannot be opened is named with the directory that it is in.
func TestSeedNamesWhatItCannotOpen(t *testing.T) {
	n := newNode(t, t.TempDir(), true)
	disk := n.State.Path("persist", "home")
	file := n.path("/home/file")
	if err := errors.Join(os.MkdirAll(disk, 0o755), os.WriteFile(file, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := n.seedTree(file, disk); err == nil || !strings.Contains(err.Error(), "open "+file) {
		t.Errorf("%v", err)
	}
	dir, err := hold(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close() // only held
	if _, err := holdIn(dir, "none"); err == nil || !strings.Contains(err.Error(), filepath.Join(disk, "none")) {
		t.Errorf("%v", err)
	}
}

// While the root of a soft-reboot is made, users go on: what a layer brings to a persisted
// directory is never made where a link leads to that its owner puts there meanwhile.
func TestSeedWhileAUserActs(t *testing.T) {
	n := newNode(t, t.TempDir(), true)
	elsewhere, disk := t.TempDir(), n.State.Path("persist", "home")
	kept, link := filepath.Join(disk, "admin"), filepath.Join(disk, "link")
	if err := errors.Join(os.MkdirAll(kept, 0o755), os.Symlink(elsewhere, link), os.Mkdir(n.path("/home/admin/new"), 0o755)); err != nil {
		t.Fatal(err)
	}
	defer exchange(kept, link)()
	brought := 0
	for range 3000 {
		if err := n.seedTree(n.path("/home"), disk); err == nil {
			brought++
		}
		if _, err := os.Lstat(filepath.Join(elsewhere, "new")); err == nil {
			t.Fatal("it is made where the link leads to")
		}
		for _, at := range []string{kept, link} { // one of them is the directory
			_ = os.Remove(filepath.Join(at, "new")) // what is not there is made by the next one
		}
	}
	if brought == 0 {
		t.Error("nothing was ever brought: this shows nothing")
	}
	t.Logf("%d of 3000 ended without an error", brought)
}

// Nor does a directory above a persisted one come to be where a link leads to.
func TestMakeAboveWhileAUserActs(t *testing.T) {
	n := newNode(t, t.TempDir(), true)
	elsewhere, disk := t.TempDir(), n.State.Path("persist", "home")
	kept, link := filepath.Join(disk, "admin"), filepath.Join(disk, "link")
	if err := errors.Join(os.MkdirAll(kept, 0o755), os.Symlink(elsewhere, link)); err != nil {
		t.Fatal(err)
	}
	defer exchange(kept, link)()
	made := 0
	for range 3000 {
		if dir, err := directory(n.State.Path("persist"), "/home/admin/a/b"); err == nil {
			_ = dir.Close() // only made
			made++
		}
		if _, err := os.Lstat(filepath.Join(elsewhere, "a")); err == nil {
			t.Fatal("it is made where the link leads to")
		}
		for _, at := range []string{kept, link} {
			_ = errors.Join(os.Remove(filepath.Join(at, "a/b")), os.Remove(filepath.Join(at, "a"))) // as above
		}
	}
	if made == 0 {
		t.Error("nothing was ever made: this shows nothing")
	}
	t.Logf("%d of 3000 were made", made)
}

// A layer's directory may belong to a user, who has it as soon as the root is there: root
// copies nothing to the disk that another file's link leads to, and opens no pipe.
func TestBringWhileAUserActs(t *testing.T) {
	for what, makeOther := range map[string]func(string) error{
		"a link": func(name string) error { return os.Symlink("/etc/passwd", name) },
		"a pipe": func(name string) error { return unix.Mkfifo(name, 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			n := newNode(t, t.TempDir(), true)
			from, other := n.path("/home/admin"), n.path("/home/other")
			profile := filepath.Join(from, ".profile")
			if err := errors.Join(makeOther(other), os.MkdirAll(n.State.Path("persist"), 0o755)); err != nil {
				t.Fatal(err)
			}
			defer exchange(profile, other)()
			to := n.State.Path("persist", "admin")
			copied := 0
			for range 200 {
				_ = n.seedTree(from, to)                              // it may fail: nothing is made then
				text, _ := os.ReadFile(filepath.Join(to, ".profile")) // missing, a link that leads nowhere here
				if info, err := os.Lstat(filepath.Join(to, ".profile")); err == nil && info.Mode().IsRegular() {
					if string(text) != "home/admin/.profile" {
						t.Fatalf("the disk has %.40q", text)
					}
					copied++
				}
				if err := os.RemoveAll(to); err != nil {
					t.Fatal(err)
				}
			}
			if copied == 0 {
				t.Error("nothing was ever copied: this shows nothing")
			}
			t.Logf("%d of 200 were copied", copied)
		})
	}
}
