// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/safepath"
)

// An open directory keeps the file system that it lies on busy, so each function
// here walks by itself and closes what it opened before it returns.

// resolve returns path without the system's own links.
func resolve(path string) (string, error) {
	var w safepath.Walk
	defer w.Close()
	return w.Resolve(path)
}

// resolve is resolve for a target. What is mounted there is not asked for anything:
// a server that is gone does not answer, and whoever asks waits for it.
func (t table) resolve(target string) (string, error) {
	parent, err := resolve(filepath.Dir(target))
	if err != nil {
		return "", err
	}
	at := filepath.Join(parent, filepath.Base(target))
	if _, there := t.at(at); there {
		return at, nil // a mount point is no link
	}
	return resolve(target)
}

// existing is resolve for what must be there.
func existing(path string) (string, error) {
	path, err := resolve(path)
	if err == nil {
		_, err = os.Lstat(path)
	}
	return path, err
}

// on calls do with a name that stands for path and for nothing else.
func on(path string, do func(name string) error) error {
	var w safepath.Walk
	defer w.Close()
	fd, _, err := w.Open(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd) // an O_PATH descriptor has nothing to lose
	return do(safepath.Name(fd))
}

// mount is mount(2) on a target that is there.
func mount(source, target, fstype string, flags uintptr, data string) error {
	return on(target, func(name string) error { return unix.Mount(source, name, fstype, flags, data) })
}

// umount takes away what is on top at target. The descriptor is of the directory
// that holds the target: one of the target itself would make it busy.
func umount(target string) error {
	var w safepath.Walk
	defer w.Close()
	return w.At(target, func(name string) error { return unix.Unmount(name, unix.UMOUNT_NOFOLLOW) })
}

// helped refuses a target that mount(8) could be led away from: it takes a name.
func helped(target string) error {
	var w safepath.Walk
	defer w.Close()
	fd, _, err := w.Open(target)
	if err != nil {
		return err
	}
	_ = unix.Close(fd) // an O_PATH descriptor has nothing to lose
	if dir, uid, found := w.Stranger(); found {
		return fmt.Errorf("%s on the way belongs to user %d, who could lead mount(8) elsewhere", dir, uid)
	}
	return nil
}

// makeTarget makes what is mounted on, a directory or an empty file.
func makeTarget(target string, file bool) error {
	var w safepath.Walk
	defer w.Close()
	if file {
		return w.Create(target)
	}
	return w.MkdirAll(target)
}

// unmake removes the directories that had to be made, as far as they are empty
// and still where they were made.
func unmake(was prior) error {
	var w safepath.Walk
	defer w.Close()
	if was.File {
		if info, err := os.Lstat(was.Target); err == nil && info.Size() > 0 {
			return nil // someone uses it
		}
	}
	for path := was.Target; was.Made != "" && len(path) >= len(was.Made); path = filepath.Dir(path) {
		err := w.Remove(path)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENOTDIR), errors.Is(err, safepath.ErrLink):
			return nil // it is in use, or another's by now
		default:
			return err
		}
	}
	return nil
}
