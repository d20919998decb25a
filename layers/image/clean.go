// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Clean makes the upper directory of an overlayfs mount a tree of its own: every
// attribute of overlayfs is removed, for it names the mount that wrote it. Opaque
// directories must be gone before.
func Clean(upper string) error {
	return filepath.WalkDir(upper, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		names, err := xattrs(name)
		if err != nil {
			return fmt.Errorf("list attributes of %s: %w", name, err)
		}
		for _, attr := range names {
			if !strings.HasPrefix(attr, "trusted.overlay.") && !strings.HasPrefix(attr, "user.overlay.") {
				continue
			}
			if err := unix.Lremovexattr(name, attr); err != nil {
				return fmt.Errorf("remove attribute %s of %s: %w", attr, name, err)
			}
		}
		return nil
	})
}

func xattrs(name string) ([]string, error) {
	buf := make([]byte, 4<<10)
	n, err := unix.Llistxattr(name, buf)
	if err == unix.ERANGE {
		buf = make([]byte, 64<<10)
		n, err = unix.Llistxattr(name, buf)
	}
	if err == unix.ENOTSUP {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, b := range bytes.Split(buf[:n], []byte{0}) {
		if len(b) > 0 {
			names = append(names, string(b))
		}
	}
	return names, nil
}

// Attributes returns the extended attributes of a file, "name=value", sorted by
// name; a link is not followed.
func Attributes(name string) ([]string, error) {
	names, err := xattrs(name)
	if err != nil {
		return nil, fmt.Errorf("list attributes of %s: %w", name, err)
	}
	slices.Sort(names)
	for i, attr := range names {
		value := make([]byte, 64<<10) // as many as the kernel allows
		n, err := unix.Lgetxattr(name, attr, value)
		if err != nil {
			return nil, fmt.Errorf("read attribute %s of %s: %w", attr, name, err)
		}
		names[i] = attr + "=" + string(value[:n])
	}
	return names, nil
}

// SplitLinks lists files of upper that were one of several hard links in a lower
// tree and are not any more: overlayfs copies up one name alone, so the others
// keep the old content.
func SplitLinks(upper string, lowers []string) ([]string, error) {
	var split []string
	err := filepath.WalkDir(upper, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(upper, name)
		if err != nil {
			return err
		}
		for _, lower := range lowers {
			var was, is unix.Stat_t
			if unix.Lstat(filepath.Join(lower, rel), &was) != nil {
				continue
			}
			if err := unix.Lstat(name, &is); err != nil {
				return fmt.Errorf("stat %s: %w", name, err)
			}
			if was.Mode&unix.S_IFMT == unix.S_IFREG && was.Nlink > 1 && is.Nlink < was.Nlink {
				split = append(split, "/"+rel)
			}
			break
		}
		return nil
	})
	return split, err
}
