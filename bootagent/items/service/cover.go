// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
)

// What is mounted at a place, and taken away from it, goes by the descriptor of the
// directory that was looked at, or of the top of what is mounted on it: the one above it may
// be a user's, who can put another in its place at any moment.

// isMountRoot reports whether a directory is that of a mount.
func isMountRoot(d safepath.Dir) bool {
	var st unix.Statx_t
	err := unix.Statx(int(d.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// checkIsImage reports whether a directory is of an image, or why that is not known. No user can
// mount one, and no other program has a reason to mount one there.
func checkIsImage(d safepath.Dir) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.Fd()), &st); err != nil {
		return &fs.PathError{Op: "look at", Path: d.Name(), Err: err}
	}
	if st.Type != unix.SQUASHFS_MAGIC {
		return fmt.Errorf("something else is mounted on %s: unmount it", d.Name())
	}
	return nil
}

// openSource opens what of a service's image is shown at a place. A link in the image leads
// nowhere else.
func (i *Item) openSource(s spec.Service, d spec.ServiceDirectory) (fd int, err error) {
	image, err := safepath.Hold(i.mountPoint(s))
	if err != nil {
		return -1, err
	}
	defer image.Close() // only read
	fd, err = safepath.Beneath(int(image.Fd()), d.From, unix.O_PATH, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: filepath.Join(image.Name(), d.From), Err: err}
	}
	return fd, nil
}

// isCovered reports whether a place with a directory is covered with the service's.
func (i *Item) isCovered(s spec.Service, d spec.ServiceDirectory) (bool, error) {
	on, err := safepath.Hold(filepath.Join(i.places.Root, d.To))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer on.Close() // only read
	from, err := i.openSource(s, d)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // the image is not mounted yet
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(from) // an O_PATH descriptor has nothing to lose
	var a, b unix.Stat_t
	if err := errors.Join(unix.Fstat(from, &a), unix.Fstat(int(on.Fd()), &b)); err != nil {
		return false, err
	}
	return isMountRoot(on) && a.Dev == b.Dev && a.Ino == b.Ino, nil
}

// coverDir shows the service's directory at a place that has another one. Who is in what
// was mounted before stays in it; nobody sees what lies below either.
func (i *Item) coverDir(s spec.Service, d spec.ServiceDirectory) error {
	on, err := safepath.Hold(filepath.Join(i.places.Root, d.To))
	if err != nil {
		return err
	}
	defer on.Close() // only held
	from, err := i.openSource(s, d)
	if err != nil {
		return err
	}
	defer unix.Close(from) // an O_PATH descriptor has nothing to lose
	tree, err := unix.OpenTree(from, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return &fs.PathError{Op: "open tree", Path: d.From, Err: err}
	}
	defer unix.Close(tree) // what was attached stays
	const byDescriptors = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	if isMountRoot(on) {
		if err := checkIsImage(on); err != nil {
			return err
		}
		const beneath = 0x200 // MOVE_MOUNT_BENEATH, Linux 6.5
		if err := unix.MoveMount(tree, "", int(on.Fd()), "", byDescriptors|beneath); err == nil {
			return unix.Unmount(safepath.Name(int(on.Fd())), unix.MNT_DETACH)
		}
	}
	if err := unix.MoveMount(tree, "", int(on.Fd()), "", byDescriptors); err != nil {
		return &fs.PathError{Op: "mount over", Path: d.To, Err: err}
	}
	return nil
}

// uncoverDir takes away all images that are mounted on a place.
func uncoverDir(at string) error {
	for {
		on, err := safepath.Hold(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		mounted := isMountRoot(on)
		if mounted {
			err = checkIsImage(on)
		}
		if mounted && err == nil {
			err = unix.Unmount(safepath.Name(int(on.Fd())), unix.MNT_DETACH)
		}
		_ = on.Close() // only held
		if err != nil || !mounted {
			return err
		}
	}
}
