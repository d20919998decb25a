// SPDX-License-Identifier: Apache-2.0

package ownfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/require"
)

func TestOpen(t *testing.T) {
	for name, spoil := range map[string]func(name string) error{
		"a link":        func(name string) error { return os.Symlink("whole", name) },
		"a second name": func(name string) error { return os.Link(filepath.Join(filepath.Dir(name), "whole"), name) },
		"a pipe":        func(name string) error { return syscall.Mkfifo(name, 0o600) },
		"a folder":      func(name string) error { return os.Mkdir(name, 0o700) },
		"writable by others": func(name string) error {
			return errors.Join(os.WriteFile(name, nil, 0o600), os.Chmod(name, 0o620))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "whole"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := Open(filepath.Join(dir, "whole"))
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close() // only read
			if err := spoil(filepath.Join(dir, "bad")); err != nil {
				t.Fatal(err)
			}
			if f, err := Open(filepath.Join(dir, "bad")); !errors.Is(err, ErrShared) {
				t.Errorf("%v, %v; want ErrShared", f, err)
			}
			if f, err := Append(filepath.Join(dir, "bad")); !errors.Is(err, ErrShared) {
				t.Errorf("Append: %v, %v; want ErrShared", f, err)
			}
			if data, err := ReadFile(filepath.Join(dir, "bad"), 10); !errors.Is(err, ErrShared) {
				t.Errorf("ReadFile: %q, %v; want ErrShared", data, err)
			}
			if f, err := Create(filepath.Join(dir, "bad")); !errors.Is(err, os.ErrExist) {
				t.Errorf("Create: %v, %v; want that it exists", f, err)
			}
		})
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := Folder(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := Folder(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v; want it closed to others", info.Mode(), err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := Folder(link); !errors.Is(err, ErrShared) {
		t.Errorf("a link was taken for a folder: %v", err)
	}
}

// Who reads beside a writer has the old content or the new one, also where the name goes to
// another file between open(2) and fstat(2).
func TestAFileThatIsReplacedMeanwhile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	end, ended := make(chan struct{}), make(chan error)
	if err := os.WriteFile(name, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		for n := 0; ; n++ {
			select {
			case <-end:
				ended <- nil
				return
			default:
			}
			next := name + ".next"
			if err := errors.Join(os.WriteFile(next, []byte{byte('0' + n%10)}, 0o600), os.Rename(next, name)); err != nil {
				ended <- err
				return
			}
		}
	}()
	for range 20_000 {
		if data, err := ReadFile(name, 10); err != nil || len(data) != 1 {
			t.Errorf("%q, %v", data, err)
			break
		}
	}
	close(end)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestSetAside: what is damaged is kept, up to nine times, and nothing for an error of the disk.
func TestSetAside(t *testing.T) {
	name := filepath.Join(t.TempDir(), "key")
	for n := range maxAside + 2 {
		if err := os.WriteFile(name, fmt.Append(nil, n), 0o600); err != nil {
			t.Fatal(err)
		}
		if to, err := SetAside(name, &fs.PathError{Err: syscall.EIO}); !errors.Is(err, syscall.EIO) {
			t.Errorf("with an error of the disk: %q, %v", to, err)
		}
		to, err := SetAside(name, errors.New("it is damaged"))
		if data, _ := os.ReadFile(to); err != nil || string(data) != fmt.Sprint(n) {
			t.Errorf("%q has %q, %v", to, data, err)
		}
	}
	if left, _ := filepath.Glob(name + "*"); len(left) != maxAside {
		t.Errorf("there are %q", left)
	}
}

// opens reports whether what a row put in the place of a file is opened.
func opens(t *testing.T, row attack.StateDisk, r rules) bool {
	t.Helper()
	dir := t.TempDir()
	row.Disks[0].Fill(t, dir)
	for name := range row.Disks[0].Files {
		f, err := r.open(filepath.Join(dir, name), os.O_RDONLY)
		if err == nil {
			_ = f.Close() // only read
			return true
		}
	}
	return false
}

// TestNoCheckIsVacuous takes each check away: something that was put on a state disk
// in place of a file is then opened.
func TestNoCheckIsVacuous(t *testing.T) {
	require.Root(t)
	rows := slices.DeleteFunc(attack.LoadClass[attack.StateDisk](t, "statedisk"), func(r attack.StateDisk) bool { return r.Check != "node/own files" })
	for _, row := range rows {
		if opens(t, row, whole) {
			t.Errorf("%s: it is opened", row.Name)
		}
	}
	for _, name := range slices.Concat(whole.flags.Names(), whole.file.Names()) {
		without := rules{whole.flags.Without(name), whole.file.Without(name)}
		if !slices.ContainsFunc(rows, func(row attack.StateDisk) bool { return opens(t, row, without) }) {
			t.Errorf("nothing more is opened without %q", name)
		}
	}
}
