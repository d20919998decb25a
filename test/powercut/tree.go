// SPDX-License-Identifier: Apache-2.0

package powercut

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Tree is what a directory holds, by path below it.
type Tree map[string]Entry

// Entry is one of its files, directories and links.
type Entry struct {
	Mode   fs.FileMode
	Data   []byte
	Target string
}

// Read returns what a directory holds. Of other things than files, directories and
// links it takes no note.
func Read(dir string) (Tree, error) {
	t := Tree{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		e := Entry{Mode: info.Mode()}
		switch {
		case info.Mode().IsRegular():
			e.Data, err = os.ReadFile(name)
		case info.Mode()&fs.ModeSymlink != 0:
			e.Mode = fs.ModeSymlink | 0o777
			e.Target, err = os.Readlink(name)
		case !info.IsDir():
			return nil
		}
		t[below] = e
		return err
	})
	return t, err
}

// Write builds a tree in a directory, which is made.
func (t Tree) Write(dir string) error {
	for _, name := range slices.Sorted(maps.Keys(t)) { // directories before what is in them
		at, e := filepath.Join(dir, name), t[name]
		var err error
		switch {
		case e.Mode.IsDir():
			err = os.MkdirAll(at, 0o700)
		case e.Mode&fs.ModeSymlink != 0:
			err = os.Symlink(e.Target, at)
		default:
			err = os.WriteFile(at, e.Data, 0o600)
		}
		if err == nil && e.Mode&fs.ModeSymlink == 0 {
			err = os.Chmod(at, e.Mode)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Diff says in what a tree differs from another, "" where it does not.
func (t Tree) Diff(want Tree) string {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if _, ok := t[name]; !ok {
			fmt.Fprintf(&out, "%s is missing\n", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		a, b := t[name], want[name]
		if a.Mode != b.Mode || a.Target != b.Target || !bytes.Equal(a.Data, b.Data) {
			fmt.Fprintf(&out, "%s is %v, %d bytes, %q; want %v, %d bytes, %q\n", name, a.Mode, len(a.Data), a.Target, b.Mode, len(b.Data), b.Target)
		}
	}
	return out.String()
}

func (t Tree) sum() [sha256.Size]byte {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(t)) {
		e := t[name]
		fmt.Fprintf(h, "%q %v %q %d\n", name, e.Mode, e.Target, len(e.Data))
		h.Write(e.Data)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// disk is a model that has the tree on it.
func (t Tree) disk() *disk {
	d := newDisk(t["."].Mode)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if e := t[name]; name != "." {
			n := &inode{mode: e.Mode, target: e.Target, data: e.Data}
			if e.Mode.IsDir() {
				n.names, n.lasts = map[string]*inode{}, map[string]*inode{}
			}
			d.add(name, n)
		}
	}
	d.syncAll()
	return d
}
