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
func (w *Walk) MkdirAll(path string) error {
	err := w.enter(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := w.MkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	err = unix.Mkdirat(w.top().fd, filepath.Base(path), 0o755)
	if errors.Is(err, fs.ErrExist) {
		return w.enter(path)
	}
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	if err := w.enter(path); err != nil {
		return err
	}
	if err := unix.Chmod(Name(w.top().fd), 0o755); err != nil {
		return &fs.PathError{Op: "chmod", Path: path, Err: err}
	}
	return nil
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

// Remove removes an empty directory or a file.
func (w *Walk) Remove(path string) error {
	if err := w.enter(filepath.Dir(path)); err != nil {
		return err
	}
	err := unix.Unlinkat(w.top().fd, filepath.Base(path), 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(w.top().fd, filepath.Base(path), unix.AT_REMOVEDIR)
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// At calls do with a name of path that leads through no link and that no other
// process can change, /proc/self/fd/N/NAME: for system calls that take no
// descriptor. The directory of path must exist.
func (w *Walk) At(path string, do func(name string) error) error {
	if err := w.enter(filepath.Dir(path)); err != nil {
		return err
	}
	return do(Name(w.top().fd) + "/" + filepath.Base(path))
}
