// SPDX-License-Identifier: Apache-2.0

package safepath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/require"
	"github.com/caisson-os/caisson/test/attack"
)

func hold(t *testing.T, path string) Dir {
	t.Helper()
	var w Walk
	defer w.Close()
	d, err := w.Hold(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // only held
	return d
}

// Whatever stands at a name, and whatever is put there: it is what was asked for, owner and
// mode included, and nothing else is left.
func TestPutReplacesAnything(t *testing.T) {
	require.Root(t)
	things := map[string]Thing{
		"":     {},
		"file": {Mode: unix.S_IFREG | 0o4751, UID: 7, GID: 8, Content: []byte("text")},
		"link": {Mode: unix.S_IFLNK, UID: 7, GID: 8, Target: "some/where"},
		"dir":  {Mode: unix.S_IFDIR | 0o2750, UID: 7, GID: 8},
	}
	for from, was := range things {
		for to, is := range things {
			root := t.TempDir()
			d := hold(t, root)
			if was.Mode != 0 {
				if err := d.Put("x", was); err != nil {
					t.Fatalf("%q: %v", from, err)
				}
			}
			if err := os.WriteFile(root+"/.x.123", nil, 0o600); err != nil { // of one who was killed
				t.Fatal(err)
			}
			do := func() error { return d.Put("x", is) }
			if to == "" {
				do = func() error { return d.Remove("x") }
			}
			if err := do(); err != nil {
				t.Errorf("%q over %q: %v", to, from, err)
			}
			got, err := d.Look("x", 10)
			if err != nil || got.Mode != is.Mode || got.UID != is.UID || got.GID != is.GID || string(got.Content) != string(is.Content) || got.Target != is.Target {
				t.Errorf("%q over %q is %+v, %v", to, from, got, err)
			}
			if left, err := os.ReadDir(root); err != nil || len(left) != len(to[:min(1, len(to))]) {
				t.Errorf("%q over %q leaves %v, %v", to, from, left, err)
			}
		}
	}
}

func TestPutLosesNothing(t *testing.T) {
	root := tree(t, "x/in")
	d := hold(t, root)
	for _, is := range []Thing{{Mode: unix.S_IFLNK, Target: "y", UID: os.Geteuid(), GID: os.Getegid()}, {Mode: unix.S_IFDIR | 0o755, UID: os.Geteuid(), GID: os.Getegid()}} {
		if err := d.Put("x", is); !errors.Is(err, unix.ENOTEMPTY) {
			t.Errorf("over a directory with files: %v", err)
		}
	}
	if err := d.Remove("x"); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("remove a directory with files: %v", err)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
	if _, err := os.Lstat(root + "/x/in"); err != nil {
		t.Error(err)
	}
}

func TestLookCounts(t *testing.T) {
	root := tree(t)
	if err := os.WriteFile(root+"/x", []byte(strings.Repeat("x", 11)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := hold(t, root).Look("x", 10); err == nil {
		t.Error("a file over the limit was read")
	}
}

// Mode and content are of one file: root's program with a user's text is nobody's.
func TestLookIsOfOneFile(t *testing.T) {
	require.Root(t)
	root := tree(t, "home/")
	if err := errors.Join(os.Chmod(filepath.Dir(root), 0o755), os.WriteFile(root+"/home/x", []byte("root's"), 0o755), os.Chmod(root+"/home/x", 0o755|os.ModeSetuid), os.WriteFile(root+"/home/y", []byte("mine"), 0o644),
		os.Lchown(root+"/home/y", attack.Nobody, attack.Nobody), os.Lchown(root+"/home", attack.Nobody, attack.Nobody)); err != nil {
		t.Fatal(err)
	}
	d := hold(t, root+"/home")
	defer attack.Race(t, func(int) {
		_ = unix.Renameat2(unix.AT_FDCWD, root+"/home/x", unix.AT_FDCWD, root+"/home/y", unix.RENAME_EXCHANGE) // it always can
	})()
	for range 2000 {
		got, err := d.Look("x", 10)
		if err != nil {
			t.Fatal(err)
		}
		if (got.UID == 0) != (string(got.Content) == "root's") || (got.Mode&unix.S_ISUID != 0) != (got.UID == 0) {
			t.Fatalf("%+v", got)
		}
	}
}
