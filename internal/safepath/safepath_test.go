// SPDX-License-Identifier: Apache-2.0

package safepath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/require"
)

// tree makes directories ("a/"), links ("a -> b") and files.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		link, to, isLink := strings.Cut(name, " -> ")
		path := filepath.Join(root, link)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case isLink:
			err = os.Symlink(to, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		default:
			err = os.WriteFile(path, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestOpenAndResolve(t *testing.T) {
	require.Root(t) // whose links are the system's own
	root := tree(t, "usr/bin/su", "bin -> usr/bin", "up/down -> ../usr/../bin", "loop -> loop", "usr/sh -> bin/su",
		"open/", "home/", "tmp/")
	for name, mode := range map[string]os.FileMode{"open": 0o777, "tmp": 0o777 | os.ModeSticky} {
		if err := os.Chmod(root+"/"+name, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []string{"open/l", "home/l", "tmp/l"} {
		if err := os.Symlink("../usr", root+"/"+at); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Lchown(root+"/home", attack.Nobody, -1), os.Lchown(root+"/tmp/l", attack.Nobody, -1)); err != nil {
		t.Fatal(err)
	}
	var w Walk
	defer w.Close()
	for _, c := range []struct {
		path, real string
		open       error
	}{
		{"/usr/bin/su", "/usr/bin/su", nil},
		{"/bin/su", "/usr/bin/su", nil},
		{"/up/down/su", "/usr/bin/su", nil},
		{"/bin", "/usr/bin", ErrLink}, // as the last name it is not the system's to say
		{"/usr/sh", "", ErrLink},
		{"/usr/bin/none/deeper", "/usr/bin/none/deeper", fs.ErrNotExist},
		{"/usr/bin/su/x", "", unix.ENOTDIR},
		{"/loop/x", "", unix.ELOOP},
		{"/open/l/bin", "", ErrLink},
		{"/home/l/bin", "", ErrLink},
		{"/tmp/l/bin", "", ErrLink},
	} {
		fd, _, err := w.Open(root + c.path)
		if err == nil {
			_ = unix.Close(fd) // nothing was written
		}
		if !errors.Is(err, c.open) {
			t.Errorf("open %s: %v, want %v", c.path, err, c.open)
		}
		switch real, err := w.Resolve(root + c.path); {
		case c.real == "" && err == nil:
			t.Errorf("resolve %s: %s", c.path, real)
		case c.real != "" && (err != nil || real != root+c.real):
			t.Errorf("resolve %s: %s, %v; want %s", c.path, real, err, c.real)
		}
	}
}

func TestGlobIsThatOfFilepath(t *testing.T) {
	root := tree(t, "a/x.conf", "a/y.conf", "a/.dot", "b/x.conf", "b/sub/z.conf", "file")
	var w Walk
	defer w.Close()
	for _, pattern := range []string{"/a/*.conf", "/*/x.conf", "/*/*", "/a/x.conf", "/none", "/file/*", "/[ab]/?.conf", "/*/*/*.conf", "/a/.*"} {
		want, err := filepath.Glob(root + pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := w.Glob(root + pattern); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", pattern, got, err, want)
		}
	}
	if _, err := w.Glob(root + "/[a"); !errors.Is(err, filepath.ErrBadPattern) {
		t.Errorf("a malformed pattern: %v", err)
	}
}

func TestMakeAndRemove(t *testing.T) {
	root := tree(t, "file")
	defer unix.Umask(unix.Umask(0o077)) // that of the agent's unit
	var w Walk
	defer w.Close()
	if err := w.Create(root + "/a/b/target"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(root + "/a/b/target"); err != nil || !info.Mode().IsRegular() {
		t.Fatalf("%v, %v", info, err)
	}
	if info, err := os.Lstat(root + "/a/b"); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if err := w.MkdirAll(root + "/file/x"); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a directory in a file: %v", err)
	}
	for _, name := range []string{"/a/b/target", "/a/b", "/a"} {
		if err := w.Remove(root + name); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(root + "/a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

// Rows that name this package fail here, and gain where every link is followed.
func TestLocalUsers(t *testing.T) {
	acts := map[string]func(t *testing.T, row attack.LocalUser, dir string){"perm": makeReadable, "mounts": makeTheirs}
	for of, act := range acts {
		rows := 0
		for _, row := range attack.LocalUsers(t, of) {
			if row.Check != "safepath" {
				continue
			}
			rows++
			t.Run(row.Name, func(t *testing.T) {
				play := func() bool {
					dir := row.Stage(t)
					act(t, row, dir)
					return row.Gained(dir)
				}
				if play() {
					t.Error("the user gained")
				}
				defer func(is func(_, _ unix.Stat_t) bool) { systems = is }(systems)
				systems = func(_, _ unix.Stat_t) bool { return true }
				if !play() {
					t.Error("the attack fails even where every link is followed")
				}
			})
		}
		if rows == 0 {
			t.Errorf("no row of %s attacks this package", of)
		}
	}
}

// makeReadable does what perm does with its paths.
func makeReadable(t *testing.T, row attack.LocalUser, dir string) {
	var w Walk
	defer w.Close()
	found, err := w.Glob(filepath.Join(dir, row.Rules[0].Path))
	if err != nil {
		t.Fatal(err)
	}
	w.Close() // what is looked up later may be another directory
	attack.AsUser(t, dir, row.Between)
	for _, path := range found {
		change(&w, path, func(name string) error { return unix.Chmod(name, 0o644) })
	}
}

// makeTheirs does what mounts does when the mount is a user's.
func makeTheirs(t *testing.T, row attack.LocalUser, dir string) {
	var w Walk
	defer w.Close()
	path := filepath.Join(dir, row.Rules[0].Path)
	attack.AsUser(t, dir, row.Between)
	if real, err := w.Resolve(path); err == nil && w.MkdirAll(real) == nil {
		change(&w, real, func(name string) error { return unix.Chown(name, attack.Nobody, attack.Nobody) })
	}
}

func change(w *Walk, path string, do func(name string) error) {
	if fd, _, err := w.Open(path); err == nil {
		_ = do(Name(fd))   // the row's gain tells
		_ = unix.Close(fd) // as it tells of the rest
	}
}

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
