// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/safepath"
)

// maxOriginal caps a file that is kept as an original, in bytes.
const maxOriginal = 256 << 10

// directory opens a directory below etc without following a link on the way.
func (i *Item) directory(rel string) (safepath.Dir, error) {
	fd, err := unix.Open(i.etc, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return safepath.Dir{}, &fs.PathError{Op: "open", Path: i.etc, Err: err}
	}
	etc := safepath.Dir{File: os.NewFile(uintptr(fd), i.etc)}
	defer etc.Close() // only held
	dir, err := etc.Below(rel)
	if errors.Is(err, unix.ELOOP) {
		err = fmt.Errorf("open /etc/%s: a symbolic link is on the way", rel)
	}
	return dir, err
}

// read returns what stands at a path of the overlay.
func (i *Item) read(path string) (state, error) {
	rel, err := below(path)
	if err != nil {
		return state{}, err
	}
	dir, err := i.directory(filepath.Dir(rel))
	if errors.Is(err, fs.ErrNotExist) {
		return i.missing(rel)
	}
	if err != nil {
		return state{}, err
	}
	defer dir.Close() // read only
	t, err := dir.Look(filepath.Base(rel), maxOriginal)
	if err != nil {
		return state{}, err
	}
	s := state{Content: string(t.Content), Target: t.Target, Mode: t.Mode & 0o7777, UID: t.UID, GID: t.GID}
	switch t.Type() {
	case unix.S_IFREG:
		s.Kind = regular
	case unix.S_IFLNK:
		s.Kind = link
	case 0: // nothing is there
	default:
		err = fmt.Errorf("%s is there and is not a file", path)
	}
	return s, err
}

// missing is the state of a path whose directory is not there.
func (i *Item) missing(rel string) (state, error) {
	var s state
	for dir := filepath.Dir(rel); dir != "."; dir = filepath.Dir(dir) {
		d, err := i.directory(dir)
		if err == nil {
			return s, d.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
		s.Missing = slices.Insert(s.Missing, 0, dir)
	}
	return s, nil
}

// write makes what stands at a path to be s, as a part of a pass.
func (i *Item) write(b *safepath.Batch, path string, s state) error {
	rel, err := below(path)
	if err != nil {
		return err
	}
	if s.Kind == absent {
		return i.remove(b, rel, s.Missing)
	}
	dir, err := i.make(b, filepath.Dir(rel))
	if err != nil {
		return err
	}
	defer dir.Close() // only held
	return b.Put(dir, filepath.Base(rel), s.thing())
}

// thing is a state as it is put.
func (s state) thing() safepath.Thing {
	kind := map[string]uint32{regular: unix.S_IFREG, link: unix.S_IFLNK}[s.Kind]
	return safepath.Thing{Mode: kind | s.Mode, UID: s.UID, GID: s.GID, Content: []byte(s.Content), Target: s.Target}
}

// make opens a directory below etc and makes what is missing of it.
func (i *Item) make(b *safepath.Batch, rel string) (safepath.Dir, error) {
	dir, err := i.directory(rel)
	if !errors.Is(err, fs.ErrNotExist) || rel == "." {
		return dir, err
	}
	above, err := i.make(b, filepath.Dir(rel))
	if err != nil {
		return safepath.Dir{}, err
	}
	err = b.MakeDir(above, filepath.Base(rel), 0o755, -1, -1)
	_ = above.Close() // only held
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return safepath.Dir{}, &fs.PathError{Op: "mkdir", Path: "/etc/" + rel, Err: err}
	}
	return i.directory(rel)
}

// remove deletes a file, and those of the directories that are empty then.
func (i *Item) remove(b *safepath.Batch, rel string, made []string) error {
	dir, err := i.directory(filepath.Dir(rel))
	if errors.Is(err, fs.ErrNotExist) {
		return i.unmake(b, made)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(b.Remove(dir, filepath.Base(rel)), dir.Close()); err != nil {
		return err
	}
	return i.unmake(b, made)
}

// unmake removes directories, innermost first, as far as they are empty.
func (i *Item) unmake(b *safepath.Batch, made []string) error {
	for _, rel := range slices.Backward(made) {
		dir, err := i.directory(filepath.Dir(rel))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = b.RemoveDir(dir, filepath.Base(rel))
		_ = dir.Close() // only held
		switch {
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
			return nil // another user's by now, or another file's
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return &fs.PathError{Op: "rmdir", Path: "/etc/" + rel, Err: err}
		}
	}
	return nil
}
