// SPDX-License-Identifier: Apache-2.0

package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/require"
)

// A part's sum changes with all that a step can see at its paths, and with
// nothing else.
func TestPartSum(t *testing.T) {
	require.Root(t)
	type change func(tree string) error
	put := func(name, text string) change {
		return func(tree string) error {
			at := filepath.Join(tree, name)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				return err
			}
			return os.WriteFile(at, []byte(text), 0o644)
		}
	}
	link := func(target, name string) change {
		return func(tree string) error { return os.Symlink(target, filepath.Join(tree, name)) }
	}
	paths := []string{"/usr/lib/firmware", "/etc/ssl/certs/ca.crt"}
	for _, c := range []struct {
		name          string
		change        change
		same, escapes bool
	}{
		{"another package", put("usr/bin/tree", "x"), true, false},
		{"beside a file", put("etc/ssl/certs/other.crt", "x"), true, false},
		{"a date", func(tree string) error {
			return unix.Utimes(filepath.Join(tree, "usr/lib/firmware/a"), []unix.Timeval{{Sec: 1}, {Sec: 1}})
		}, true, false},
		{"a file more", put("usr/lib/firmware/deep/b", "x"), false, false},
		{"another text", put("usr/lib/firmware/a", "y"), false, false},
		{"a mode", func(tree string) error { return os.Chmod(filepath.Join(tree, "usr/lib/firmware/a"), 0o600) }, false, false},
		{"a mode on the way", func(tree string) error { return os.Chmod(filepath.Join(tree, "usr/lib"), 0o700) }, false, false},
		{"a removed file", func(tree string) error {
			return unix.Mknod(filepath.Join(tree, "usr/lib/firmware/gone"), unix.S_IFCHR, 0)
		}, false, false},
		{"a directory that hides those below", func(tree string) error {
			return unix.Setxattr(filepath.Join(tree, "usr/lib"), "trusted.overlay.opaque", []byte("y"), 0)
		}, false, false},
		{"a file of its own", put("etc/ssl/certs/ca.crt", "x"), false, false},
		{"a link within", link("a", "usr/lib/firmware/l"), false, false},
		{"a link out", link("../../bin/x", "usr/lib/firmware/l"), false, true},
		{"a link out on the way", link("/srv/ssl", "etc/ssl"), false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := t.TempDir()
			if err := put("usr/lib/firmware/a", "x")(tree); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(tree, "etc"), 0o755); err != nil {
				t.Fatal(err)
			}
			before, err := PartSum(tree, "", paths)
			if err != nil || before == "" {
				t.Fatal(before, err)
			}
			if c.name == "beside a file" { // the directories on the way are seen, too
				if err := os.MkdirAll(filepath.Join(tree, "etc/ssl/certs"), 0o755); err != nil {
					t.Fatal(err)
				}
				if before, err = PartSum(tree, "", paths); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.change(tree); err != nil {
				t.Fatal(err)
			}
			after, err := PartSum(tree, "", paths)
			if err != nil || (after == before) != c.same || (after == "") != c.escapes {
				t.Errorf("%q after %q, %v", after, before, err)
			}
		})
	}
}

// A package that brings a directory on the way as it is below changes no part.
func TestPartSumOfADirectoryBelow(t *testing.T) {
	require.Root(t)
	paths := []string{"/usr/lib/firmware"}
	tree, below := t.TempDir(), t.TempDir()
	for _, dir := range []string{tree, filepath.Join(below, "usr/lib")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sum := func() string {
		t.Helper()
		got, err := PartSum(tree, below, paths)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	nothing := sum()
	library := filepath.Join(tree, "usr/lib")
	if err := os.MkdirAll(library, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := sum(); got != nothing {
		t.Errorf("with a library it is %s, not %s", got, nothing)
	}
	if err := unix.Setxattr(library, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
		t.Fatal(err)
	}
	if sum() == nothing {
		t.Error("what hides those below changes nothing")
	}
	if err := unix.Removexattr(library, "trusted.overlay.opaque"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(library, 0o700); err != nil {
		t.Fatal(err)
	}
	if sum() == nothing {
		t.Error("another mode changes nothing")
	}
}

// A seal sees every change, and takes a copy for what it is.
func TestSeal(t *testing.T) {
	require.Root(t)
	for name, c := range map[string]struct {
		change func(tree string) error
		holds  bool
	}{
		"nothing":           {func(string) error { return nil }, true},
		"a file is emptied": {func(tree string) error { return os.Truncate(filepath.Join(tree, "a/file"), 0) }, false},
		"another owner":     {func(tree string) error { return os.Chown(filepath.Join(tree, "a/file"), 7, 7) }, false},
		"another mode":      {func(tree string) error { return os.Chmod(filepath.Join(tree, "a"), 0o700) }, false},
		"a file more":       {func(tree string) error { return os.WriteFile(filepath.Join(tree, "b"), nil, 0o644) }, false},
		"a file less":       {func(tree string) error { return os.Remove(filepath.Join(tree, "a/file")) }, false},
		"another name":      {func(tree string) error { return os.Rename(filepath.Join(tree, "a"), filepath.Join(tree, "b")) }, false},
		"a copy in place": {func(tree string) error {
			return exec.Command("sh", "-c", "cp -a \"$1\" \"$1\".x && rm -r \"$1\" && mv \"$1\".x \"$1\"", "sh", tree).Run()
		}, true},
		"same size and date": {func(tree string) error {
			name := filepath.Join(tree, "a/file")
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			if err := os.WriteFile(name, []byte("other"), 0o644); err != nil {
				return err
			}
			return os.Chtimes(name, time.Now(), info.ModTime())
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tree := filepath.Join(t.TempDir(), "tree")
			if err := os.MkdirAll(filepath.Join(tree, "a"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(tree, "a/file"), []byte("words"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("file", filepath.Join(tree, "a/link")); err != nil {
				t.Fatal(err)
			}
			s, err := SealTree(tree)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.change(tree); err != nil {
				t.Fatal(err)
			}
			if ok, err := s.Holds(tree); err != nil || ok != c.holds {
				t.Errorf("holds: %v, %v", ok, err)
			}
		})
	}
}
