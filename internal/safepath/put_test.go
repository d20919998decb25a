// SPDX-License-Identifier: Apache-2.0

package safepath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/require"
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

// Whatever stands at a name, and whatever is put there: the result is as asked for, owner and
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
	if _, err := hold(t, root).Look("x", 10); err == nil || !strings.HasPrefix(err.Error(), "read "+root+"/x: ") {
		t.Errorf("a file over the limit was read, or is not named: %v", err)
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

// A directory that is made has its name when it is whole; what was cut leaves nothing, and
// what is there stays.
func TestMakeDir(t *testing.T) {
	require.Root(t)
	root := t.TempDir()
	d := hold(t, root)
	cut := func() {
		t.Helper()
		if err := os.Mkdir(root+"/.x.123", 0o700); err != nil { // by one who was killed
			t.Fatal(err)
		}
	}
	left := func(want int) {
		t.Helper()
		if left, err := os.ReadDir(root); err != nil || len(left) != want {
			t.Errorf("%v, %v", left, err)
		}
	}
	cut()
	if err := d.MakeDir("x", 0o2751, 7, 8); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Look("x", 0); err != nil || got.Mode != unix.S_IFDIR|0o2751 || got.UID != 7 || got.GID != 8 {
		t.Errorf("%+v, %v", got, err)
	}
	left(1)
	cut()
	if err := d.MakeDir("x", 0o700, 0, 0); !errors.Is(err, os.ErrExist) {
		t.Errorf("made over what is there: %v", err)
	}
	left(1)
	for what, remove := range map[string]func() error{
		"a batch": func() error { var b Batch; return errors.Join(b.RemoveDir(d, "x"), b.Sync()) },
		"a walk":  func() error { var w Walk; defer w.Close(); return w.Remove(root + "/x") },
	} {
		cut()
		if err := remove(); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
		}
		left(0)
	}
}

// A name may be as long as a file system takes, and two that begin alike are two.
func TestLongNames(t *testing.T) {
	root := tree(t)
	d := hold(t, root)
	a, b := strings.Repeat("x", unix.NAME_MAX-1)+"a", strings.Repeat("x", unix.NAME_MAX-1)+"b"
	own := Thing{Mode: unix.S_IFREG | 0o644, UID: os.Geteuid(), GID: os.Getegid()}
	for _, name := range []string{a, strings.Repeat("ä", unix.NAME_MAX/2), strings.Repeat("y", 234)} {
		if err := d.Put(name, own); err != nil {
			t.Error(err)
		}
		if got := temporary(name); len(got) > unix.NAME_MAX {
			t.Errorf("%q is of %d bytes", got, len(got))
		}
	}
	if stem(a) == stem(b) {
		t.Error("what is left of one is swept for the other")
	}
	if of, is := stemOf(temporary(a)); !is || of != stem(a) {
		t.Errorf("what is left of %q is of %q", stem(a), of)
	}
}

// A pass reads each directory once, however much is put into it.
func TestBatchLooksOnce(t *testing.T) {
	root := tree(t, "a/", "b/")
	own := Thing{Mode: unix.S_IFREG | 0o644, UID: os.Geteuid(), GID: os.Getegid()}
	var b Batch
	for n := range 10 {
		for _, dir := range []string{"a", "b"} {
			d := hold(t, filepath.Join(root, dir))
			if err := b.Put(d, fmt.Sprint(n), own); err != nil {
				t.Fatal(err)
			}
			if n == 0 { // it was looked at before
				if err := os.WriteFile(filepath.Join(root, dir, ".9.1"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if len(b.dirs) != 2 {
		t.Errorf("%d directories are entered", len(b.dirs))
	}
	if err := b.Sync(); err != nil || b.dirs != nil {
		t.Errorf("%v, %v", b.dirs, err)
	}
	for _, dir := range []string{"a", "b"} {
		if left, err := os.ReadDir(filepath.Join(root, dir)); err != nil || len(left) != 11 {
			t.Errorf("%s was read again: %v, %v", dir, left, err)
		}
	}
	for n := range 3 * held { // and no more than so many are open
		if err := os.Mkdir(filepath.Join(root, fmt.Sprint(n)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := b.Put(hold(t, filepath.Join(root, fmt.Sprint(n))), "x", own); err != nil || len(b.dirs) > held {
			t.Fatal(len(b.dirs), err)
		}
	}
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
}

// A pass that lets go of a directory which cannot be made durable goes on, and says so at its
// end: what was done there counts as lost.
func TestABatchKeepsWhatWasLost(t *testing.T) {
	root := t.TempDir()
	var b Batch
	file := Thing{Mode: unix.S_IFREG | 0o644, UID: os.Geteuid(), GID: os.Getegid()}
	for n := range held {
		name := fmt.Sprint(root, "/", n)
		if err := os.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := b.Put(hold(t, name), "x", file); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.dirs[0].Close(); err != nil { // whose fsync fails
		t.Fatal(err)
	}
	d := hold(t, root)
	if err := b.Put(d, "y", file); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the seventeenth directory: %v", err)
	}
	if err := b.Put(d, "y", file); err != nil {
		t.Errorf("what comes after: %v", err)
	}
	if err := b.Sync(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the end of the pass: %v", err)
	}
	if err := b.Sync(); err != nil {
		t.Errorf("the next pass: %v", err)
	}
}
