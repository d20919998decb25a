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

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec"
)

// activeLink is the link that names the active image.
const activeLink = "now"

func (i *Item) imagesDir(name string) string { return filepath.Join(i.places.Run, name) }

// mountPoint is where the image of a service is mounted.
func (i *Item) mountPoint(s spec.Service) string {
	_, hex, _ := strings.Cut(s.Image.Digest, ":")
	return filepath.Join(i.imagesDir(s.Name), hex)
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
	if err := makeTraversable(at, filepath.Dir(filepath.Dir(i.places.Run))); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return i.images.Mount(s.Image, at)
}

// makeTraversable makes a directory and those above it up to another, so that every user can
// go through them: whatever this process's umask is, services are not root.
func makeTraversable(dir, below string) error {
	if dir == below || dir == "/" {
		return nil
	}
	if err := makeTraversable(filepath.Dir(dir), below); err != nil {
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

// activate has the link of a service name its wanted image, by one rename.
func (i *Item) activate(ctx context.Context, s spec.Service) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	link := filepath.Join(i.imagesDir(s.Name), activeLink)
	next := link + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(filepath.Base(i.mountPoint(s)), next); err != nil {
		return err
	}
	return os.Rename(next, link)
}

// unmountImages unmounts all images of a service. A process with an open file keeps it.
func (i *Item) unmountImages(ctx context.Context, name string) error {
	dir := i.imagesDir(name)
	list, err := os.ReadDir(dir)
	if err != nil {
		return fault.But(err, fs.ErrNotExist)
	}
	for _, e := range list {
		at := filepath.Join(dir, e.Name())
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := unmountAll(at, unix.MNT_DETACH); err != nil {
			return err
		}
		if err := os.Remove(at); err != nil {
			return err
		}
	}
	if err := os.Remove(dir); err != nil {
		return err
	}
	return fault.But(os.Remove(i.places.Run), unix.ENOTEMPTY)
}

// unmountAll unmounts all that is mounted on a path.
func unmountAll(at string, flags int) error {
	for isMounted(at) {
		if err := unix.Unmount(at, flags|unix.UMOUNT_NOFOLLOW); err != nil {
			return &fs.PathError{Op: "unmount", Path: at, Err: err}
		}
	}
	return nil
}

// Tidy unmounts images that are not active and that nobody uses; others are tried the next
// time.
func Tidy(p Places) error {
	names, err := os.ReadDir(p.Run)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, n := range names {
		dir := filepath.Join(p.Run, n.Name())
		now, err := os.Readlink(filepath.Join(dir, activeLink))
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
			if err := unmountAll(at, 0); errors.Is(err, unix.EBUSY) {
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
