// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// opaqueMarks say that a directory hides what lower trees have in it: overlayfs
// writes the second one in a user namespace, where nobody may write the first.
var opaqueMarks = []string{"trusted.overlay.opaque", "user.overlay.opaque"}

// IsOpaque says whether a directory hides what lower trees have in it.
func IsOpaque(dir string) bool {
	for _, mark := range opaqueMarks {
		var b [1]byte
		if n, err := unix.Lgetxattr(dir, mark, b[:]); err == nil && n == 1 && b[0] == 'y' {
			return true
		}
	}
	return false
}

// Flatten replaces each opaque directory of an upper tree by a plain one with
// whiteouts of what it hides. That is the same on these lower trees, whichever user made
// it: an image carries whiteouts to any node, and a mark of a user namespace to none.
func Flatten(upper string, lowers []string) error {
	return filepath.WalkDir(upper, func(at string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() || !IsOpaque(at) {
			return err
		}
		if err := hide(upper, lowers, at[len(upper):]); err != nil {
			return err
		}
		for _, mark := range opaqueMarks {
			if err := unix.Lremovexattr(at, mark); err != nil && err != unix.ENODATA && err != unix.EPERM { // one that is not ours is not there
				return fmt.Errorf("remove attribute %s of %s: %w", mark, at, err)
			}
		}
		return nil
	})
}

// hide makes whiteouts in the upper directory dir of all that lower trees show
// there. What both have as a directory is gone through.
func hide(upper string, lowers []string, dir string) error {
	below, err := merged(lowers, dir)
	if err != nil {
		return err
	}
	for name := range below {
		at := filepath.Join(upper, dir, name)
		info, err := os.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := unix.Mknod(at, unix.S_IFCHR, 0); err != nil {
				return fmt.Errorf("make a whiteout at %s: %w", at, err)
			}
		case err != nil:
			return err
		case info.IsDir():
			if err := hide(upper, lowers, path.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// merged lists what the lower trees together show in a directory. Links on the way
// are not followed: below a directory of the upper tree they show nothing.
func merged(lowers []string, dir string) (map[string]bool, error) {
	shown := map[string]bool{} // false: a whiteout hides it
	for _, tree := range lowers {
		at, last := tree, false
		for _, part := range append([]string{""}, strings.Split(strings.Trim(dir, "/"), "/")...) {
			at = filepath.Join(at, part)
			info, err := os.Lstat(at)
			if errors.Is(err, fs.ErrNotExist) {
				at = ""
				break
			}
			if err != nil {
				return nil, err
			}
			if !info.IsDir() { // and so hides all trees below
				at, last = "", true
				break
			}
			last = last || IsOpaque(at)
		}
		if at != "" {
			entries, err := os.ReadDir(at)
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				if _, decided := shown[e.Name()]; decided {
					continue
				}
				info, err := e.Info()
				if err != nil {
					return nil, err
				}
				shown[e.Name()] = !IsWhiteout(info)
			}
		}
		if last {
			break
		}
	}
	maps.DeleteFunc(shown, func(_ string, is bool) bool { return !is })
	return shown, nil
}

// IsWhiteout says whether info is overlayfs's mark of a deleted file.
func IsWhiteout(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0
}
