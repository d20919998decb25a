// SPDX-License-Identifier: Apache-2.0

package root

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

// What is written goes through an [os.Root]: a package may have put a link to
// anywhere in the place of a directory, and the builder is root on its host.

// MkdirAll makes the directory name in the upper tree. One that lies in a lower
// tree keeps its mode and owner, because an upper directory's win.
func (r *Root) MkdirAll(name string, perm fs.FileMode) error {
	if path.Clean("/"+name) == "/" { // made here so that no umask shows in the image
		if err := os.MkdirAll(r.Upper, 0o755); err != nil {
			return err
		}
		return os.Chmod(r.Upper, 0o755)
	}
	return r.write(name, func(up *os.Root, name string) error { return r.mkdirAll(up, name, perm) })
}

// write calls do with the upper tree and name in it.
func (r *Root) write(name string, do func(up *os.Root, name string) error) error {
	up, err := os.OpenRoot(r.Upper)
	if err != nil {
		return err
	}
	defer up.Close() // a descriptor of a directory
	return do(up, strings.TrimPrefix(path.Clean("/"+name), "/"))
}

func (r *Root) mkdirAll(up *os.Root, name string, perm fs.FileMode) error {
	if name == "." {
		return nil
	}
	info, err := up.Lstat(name)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("make directory /%s: there is a %s", name, describeType(info.Mode()))
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	below, err := r.Lstat(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && !below.IsDir() {
		return fmt.Errorf("make directory /%s: there is a %s", name, describeType(below.Mode()))
	}
	if err := r.mkdirAll(up, path.Dir(name), 0o755); err != nil {
		return err
	}
	if err := up.Mkdir(name, 0o700); err != nil {
		return err
	}
	uid, gid := 0, 0
	if below != nil {
		st := below.Sys().(*syscall.Stat_t)
		uid, gid, perm = int(st.Uid), int(st.Gid), below.Mode()
	}
	if err := up.Chown(name, uid, gid); err != nil {
		return err
	}
	return up.Chmod(name, perm&modeBits)
}

// modeBits holds the bits that chmod(2) sets.
const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// WriteFile replaces the file name in the upper tree, owned by root.
func (r *Root) WriteFile(name string, data []byte, perm fs.FileMode) error {
	return r.WriteOwned(name, data, perm, 0, 0)
}

// WriteOwned replaces the file name in the upper tree.
func (r *Root) WriteOwned(name string, data []byte, perm fs.FileMode, uid, gid int) error {
	return r.write(name, func(up *os.Root, name string) error {
		if err := r.replace(up, name); err != nil {
			return err
		}
		if err := up.WriteFile(name, data, 0o600); err != nil {
			return err
		}
		if err := up.Chown(name, uid, gid); err != nil {
			return err
		}
		return up.Chmod(name, perm)
	})
}

// Symlink makes name point to target, in place of what was there.
func (r *Root) Symlink(target, name string) error {
	return r.write(name, func(up *os.Root, name string) error {
		if err := r.replace(up, name); err != nil {
			return err
		}
		return up.Symlink(target, name)
	})
}

// replace makes room for name.
func (r *Root) replace(up *os.Root, name string) error {
	if err := r.mkdirAll(up, path.Dir(name), 0o755); err != nil {
		return err
	}
	return up.RemoveAll(name)
}

// Lchown changes the owner of name, which lies in the upper tree.
func (r *Root) Lchown(name string, uid, gid int) error {
	return r.write(name, func(up *os.Root, name string) error { return up.Lchown(name, uid, gid) })
}

// Remove removes the file name from the upper tree.
func (r *Root) Remove(name string) error {
	return r.write(name, func(up *os.Root, name string) error { return up.Remove(name) })
}

// Chmod changes the mode of name, which lies in the upper tree.
func (r *Root) Chmod(name string, perm fs.FileMode) error {
	return r.write(name, func(up *os.Root, name string) error { return up.Chmod(name, perm) })
}

// RemoveGlob removes from tree what matches the patterns, those of [path.Match].
func RemoveGlob(tree string, patterns []string) error {
	top, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer top.Close() // a descriptor of a directory
	for _, pattern := range patterns {
		found, err := []string{pattern}, error(nil)
		if strings.ContainsAny(pattern, `*?[`) { // Glob would follow a link that is the last part
			found, err = fs.Glob(top.FS(), pattern)
		} else if _, missing := top.Lstat(pattern); missing != nil {
			continue
		}
		if err != nil {
			return err
		}
		for _, name := range found {
			if err := top.RemoveAll(name); err != nil {
				return fmt.Errorf("remove %s: %w", filepath.Join("/", name), err)
			}
		}
	}
	return nil
}

// opaqueMarks say that a directory hides what lower trees have in it: overlayfs
// writes the second one in a user namespace, where nobody may write the first.
var opaqueMarks = []string{"trusted.overlay.opaque", "user.overlay.opaque"}

func isOpaque(dir string) bool {
	for _, mark := range opaqueMarks {
		var b [1]byte
		if n, err := unix.Lgetxattr(dir, mark, b[:]); err == nil && n == 1 && b[0] == 'y' {
			return true
		}
	}
	return false
}

// Flatten replaces each opaque directory of the upper tree by a plain one with
// whiteouts of what it hides. That is the same on these lower trees, whichever user made
// it: an image carries whiteouts to any node, and a mark of a user namespace to none.
func (r *Root) Flatten() error {
	return filepath.WalkDir(r.Upper, func(at string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() || !isOpaque(at) {
			return err
		}
		if err := r.hide(at[len(r.Upper):]); err != nil {
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
func (r *Root) hide(dir string) error {
	below, err := r.merged(dir)
	if err != nil {
		return err
	}
	for name := range below {
		at := filepath.Join(r.Upper, dir, name)
		info, err := os.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := unix.Mknod(at, unix.S_IFCHR, 0); err != nil {
				return fmt.Errorf("make a whiteout at %s: %w", at, err)
			}
		case err != nil:
			return err
		case info.IsDir():
			if err := r.hide(path.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// merged lists what the lower trees together show in a directory. Links on the way
// are not followed: below a directory of the upper tree they show nothing.
func (r *Root) merged(dir string) (map[string]bool, error) {
	shown := map[string]bool{} // false: a whiteout hides it
	for _, tree := range r.Lowers {
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
			last = last || isOpaque(at)
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
