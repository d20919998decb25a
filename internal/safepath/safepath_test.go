// SPDX-License-Identifier: Apache-2.0

package safepath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/require"
	"github.com/caisson-os/caisson/test/attack"
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
	var w Walk
	defer w.Close()
	if err := w.Create(root + "/a/b/target"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(root + "/a/b/target"); err != nil || !info.Mode().IsRegular() {
		t.Fatalf("%v, %v", info, err)
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
	act := func(t *testing.T, row attack.LocalUser) bool {
		dir := row.Stage(t)
		var w Walk
		defer w.Close()
		found, err := w.Glob(filepath.Join(dir, row.Rules[0].Path))
		if err != nil {
			t.Fatal(err)
		}
		w.Close() // what is looked up later may be another directory
		attack.AsUser(t, dir, row.Between)
		for _, path := range found {
			if fd, _, err := w.Open(path); err == nil {
				if err := unix.Chmod(fdName(fd), 0o644); err != nil {
					t.Error(err)
				}
				_ = unix.Close(fd) // the test looks at the file itself
			}
		}
		return row.Gained(dir)
	}
	rows := 0
	for _, row := range attack.LocalUsers(t, "perm") {
		if row.Check != "safepath" {
			continue
		}
		rows++
		t.Run(row.Name, func(t *testing.T) {
			if act(t, row) {
				t.Error("the user gained")
			}
			defer func(is func(_, _ unix.Stat_t) bool) { systems = is }(systems)
			systems = func(_, _ unix.Stat_t) bool { return true }
			if !act(t, row) {
				t.Error("the attack fails even where every link is followed")
			}
		})
	}
	if rows == 0 {
		t.Error("no row attacks this package")
	}
}
