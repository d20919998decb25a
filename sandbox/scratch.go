// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/stall"
)

// scratch is a directory for what a sandbox makes. It is locked while the process that made it lives, and
// goes with it: also where that was killed, the next one removes it.
type scratch struct {
	Name string
	lock *os.File
}

// newScratch makes a directory below parent, and removes those there whose process was
// killed before it could.
func newScratch(ctx context.Context, parent string) (d *scratch, err error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	all, err := os.Open(parent)
	if err != nil {
		return nil, err
	}
	defer all.Close() // which gives the lock back
	if err := stall.Lock(ctx, all, false); err != nil {
		return nil, err
	}
	if err := sweep(parent); err != nil {
		return nil, err
	}
	d = &scratch{}
	if d.Name, err = os.MkdirTemp(parent, "try-"); err != nil {
		return nil, err
	}
	if d.lock, err = os.Open(d.Name); err == nil {
		err = stall.Lock(ctx, d.lock, false)
	}
	if err != nil {
		return nil, errors.Join(err, d.Remove())
	}
	return d, nil
}

// sweep removes what killed processes have left. Who has a directory below parent has it
// locked, and makes it under the lock of parent.
func sweep(parent string) error {
	left, err := filepath.Glob(filepath.Join(parent, "try-*"))
	if err != nil {
		return err
	}
	for _, name := range left {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // its owner has just removed it
		}
		if err != nil {
			return err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			err = os.RemoveAll(name)
		} else if errors.Is(err, unix.EWOULDBLOCK) {
			err = nil // its process lives
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// File is the name of a file in the directory.
func (d *scratch) File(name string) string { return filepath.Join(d.Name, name) }

// Remove removes it with all that is in it.
func (d *scratch) Remove() error {
	err := os.RemoveAll(d.Name)
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	return err
}

// enlarge gives a file so many bytes, and makes it where it is not there.
func enlarge(name string, size int64) (err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return f.Truncate(size)
	}
	return fault.In(err, "make a disk of %d MiB", size>>20)
}
