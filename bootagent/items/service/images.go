// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
)

// current is the link that names the image that counts.
const current = "now"

func (i *Item) dir(name string) string { return filepath.Join(i.places.Run, name) }

// mountPoint is where the image of a service is mounted.
func (i *Item) mountPoint(s spec.Service) string {
	_, hex, _ := strings.Cut(s.Image.Digest, ":")
	return filepath.Join(i.dir(s.Name), hex)
}

// now is the name of the mount point that counts, "" for none.
func (i *Item) now(name string) string {
	to, err := os.Readlink(filepath.Join(i.dir(name), current))
	if err != nil {
		return ""
	}
	return to
}

// isMounted reports whether something is mounted on a path.
func isMounted(at string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, at, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// mount mounts the image of a service beside those that it had.
func (i *Item) mount(ctx context.Context, s spec.Service) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	at := i.mountPoint(s)
	if err := passable(at, filepath.Dir(filepath.Dir(i.places.Run))); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return i.images.Mount(s.Image, at)
}

// passable makes a directory and those above it up to another, so that every user can
// go through them: whatever this process's umask is, services are not root.
func passable(dir, below string) error {
	if dir == below || dir == "/" {
		return nil
	}
	if err := passable(filepath.Dir(dir), below); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		return os.Chmod(dir, 0o755)
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode()&0o011 == 0o011 {
		return err
	}
	return os.Chmod(dir, info.Mode()|0o011)
}

// turn makes the image of a service the one that counts, by one rename.
func (i *Item) turn(ctx context.Context, s spec.Service) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	link := filepath.Join(i.dir(s.Name), current)
	next := link + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(filepath.Base(i.mountPoint(s)), next); err != nil {
		return err
	}
	return os.Rename(next, link)
}

// unmount takes all images of a service away. Who has a file of one open keeps it.
func (i *Item) unmount(ctx context.Context, name string) error {
	dir := i.dir(name)
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		at := filepath.Join(dir, e.Name())
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := leave(at, unix.MNT_DETACH); err != nil {
			return err
		}
		if err := os.Remove(at); err != nil {
			return err
		}
	}
	if err := os.Remove(dir); err != nil {
		return err
	}
	if err := os.Remove(i.places.Run); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// leave unmounts all that is mounted on a path.
func leave(at string, flags int) error {
	for isMounted(at) {
		if err := unix.Unmount(at, flags|unix.UMOUNT_NOFOLLOW); err != nil {
			return &fs.PathError{Op: "unmount", Path: at, Err: err}
		}
	}
	return nil
}

// Tidy unmounts images that count no more, as far as nobody uses them: others are tried
// the next time.
func Tidy(p Places) error {
	names, err := os.ReadDir(p.Run)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range names {
		dir := filepath.Join(p.Run, n.Name())
		now, err := os.Readlink(filepath.Join(dir, current))
		if err != nil {
			continue // it is being made, or taken away
		}
		list, err := os.ReadDir(dir)
		errs = append(errs, err)
		for _, e := range list {
			at := filepath.Join(dir, e.Name())
			if e.Name() == now || !e.IsDir() {
				continue
			}
			if err := leave(at, 0); errors.Is(err, unix.EBUSY) {
				continue
			} else if err == nil {
				err = os.Remove(at)
				errs = append(errs, err)
			} else {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// readsUnits reports whether systemd itself reads some of a service's files.
func readsUnits(s spec.Service) bool {
	return slices.ContainsFunc(s.Directories, func(d spec.ServiceDirectory) bool { return strings.HasPrefix(d.To, "/etc/systemd/") })
}
