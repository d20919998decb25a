// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// mount mounts the state disk at a directory, writable. A disk that only lets
// itself be read, as a worn-out one does, is read: what is written goes to memory
// above it, and is gone with the next boot. readOnly is then the reason.
func (f *Finder) mount(device, at string) (readOnly, err error) {
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, err
	}
	if readOnly = f.Mounter.Mount(device, at, false); readOnly == nil {
		return nil, nil
	}
	if err := f.toRead(device, at); errors.Is(err, errNotRead) {
		return nil, readOnly // the same reason, and what was tried first
	} else if err != nil {
		return nil, err
	}
	return readOnly, nil
}

var errNotRead = errors.New("the state disk cannot be read")

// toRead mounts a disk to be read, with memory over it that takes what is written.
func (f *Finder) toRead(device, at string) error {
	if err := f.Mounter.Mount(device, at, true); err != nil {
		return fmt.Errorf("%w: %w", errNotRead, err)
	}
	if err := shade(at); err != nil {
		return errors.Join(err, f.Mounter.Unmount(at))
	}
	return nil
}

// Again mounts a disk of this boot a second time, to be read only: kernels from 6.11 on let
// no part of an ext4 be read once a write to it has failed. What was written to memory above
// a disk that could only be read anyway is lost, so one is mounted again once.
func (f *Finder) Again(device, at string) error {
	if err := f.Mounter.Unmount(at); err != nil {
		return err
	}
	return f.toRead(device, at)
}

// shade stacks memory over a read-only directory.
func shade(at string) error {
	base := at + ".memory"
	upper, work := filepath.Join(base, "upper"), filepath.Join(base, "work")
	for _, dir := range []string{base, upper, work} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	options := "lowerdir=" + at + ",upperdir=" + upper + ",workdir=" + work + ",redirect_dir=off,metacopy=off,index=off,xino=off"
	if err := unix.Mount("caisson-state", at, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("stack memory over a read-only state disk: %w", err)
	}
	return nil
}

// kernel mounts for real. ext4 is in every loader, xfs where the site names its
// module.
type kernel struct{}

func (kernel) Mount(device, at string, readOnly bool) error {
	var errs []error
	for _, fs := range []struct{ kind, unread string }{{"ext4", "noload"}, {"xfs", "norecovery"}} {
		flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME)
		options := []string{""}
		if readOnly {
			// A log is replayed where the device lets itself be written to: without that
			// a disk that was cut off shows files that never were. Else it is left.
			flags, options = flags|unix.MS_RDONLY, []string{"", fs.unread}
		}
		for _, option := range options {
			err := unix.Mount(device, at, fs.kind, flags, option)
			if err == nil {
				return nil
			}
			errs = append(errs, fmt.Errorf("mount %s as %s: %w", device, fs.kind, err))
		}
	}
	return errors.Join(errs[0], errs[len(errs)-1])
}

// preen repairs a file system as far as that needs no question, and says what it did. A
// file system that it does not know is left as it is: the mount says what is wrong.
func (f *Finder) preen(device string, force bool) error {
	if f.Programs == nil || !IsExt4(device) {
		return nil
	}
	repaired, err := f.Programs.Preen(device, force)
	if err == nil && repaired != "" {
		f.Say("state disk %s was damaged, and is repaired: %s", device, repaired)
	}
	return err
}

// Settle makes a mounted state disk one that can only be read: what its log has is in its
// place then, as after a shutdown.
func Settle(at string) error {
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("leave the state disk as a shutdown does: %w", err)
	}
	return nil
}

func (kernel) Unmount(at string) error {
	if err := unix.Unmount(at, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	return nil
}

// others lists the directories of users and of scripts, which may hold any kind of file.
var others = []string{"persist", "exec", "lost+found"}

// Sweep deletes from a mounted state disk what the agent never writes: links, pipes,
// sockets and devices. They were put there to be opened. What stood in their
// place is lost, and said; the node goes on without it.
func (f *Finder) Sweep(dir string) error {
	return filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case filepath.Dir(name) == dir && slices.Contains(others, e.Name()):
			if e.IsDir() {
				return fs.SkipDir
			}
		case e.IsDir() || e.Type().IsRegular():
			return nil
		}
		f.Say("%s on the state disk is a %s and not the agent's: it is deleted", name[len(dir)+1:], kind(e.Type()))
		return os.Remove(name)
	})
}

func kind(mode fs.FileMode) string {
	switch mode {
	case fs.ModeSymlink:
		return "link"
	case fs.ModeNamedPipe:
		return "pipe"
	case fs.ModeSocket:
		return "socket"
	case 0:
		return "file"
	}
	return "device"
}
