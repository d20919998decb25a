// SPDX-License-Identifier: Apache-2.0

package safepath

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MkdirAll makes the directories of path that are missing, mode 0755 whatever
// the umask is, owned by this process.
func (w *Walk) MkdirAll(path string) error { return w.MkdirAllFor(path, -1, -1) }

// MkdirAllFor is MkdirAll for an owner; an id of -1 is this process's.
func (w *Walk) MkdirAllFor(path string, uid, gid int) error {
	err := w.enter(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := w.MkdirAllFor(filepath.Dir(path), uid, gid); err != nil {
		return err
	}
	in, err := w.Hold(filepath.Dir(path))
	if err != nil {
		return err
	}
	err = in.MakeDir(filepath.Base(path), 0o755, uid, gid)
	_ = in.Close() // a directory has nothing left to write
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return w.enter(path)
}

// Create makes path an empty file, mode 0644 less the umask, unless there is one. What is there
// and not a file is left alone.
func (w *Walk) Create(path string) error {
	if err := w.MkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	fd, err := unix.Openat(w.top().fd, filepath.Base(path), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "create", Path: path, Err: err}
	}
	return unix.Close(fd)
}

// Remove removes an empty directory or a file, durably, and what a killed process left
// that made it.
func (w *Walk) Remove(path string) error {
	in, err := w.Hold(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer in.Close() // what matters is synced by the batch
	var b Batch
	if err := errors.Join(b.remove(in, filepath.Base(path), Dir.unlink), b.Sync()); err != nil {
		return in.failed("remove", filepath.Base(path), err)
	}
	return nil
}
