// SPDX-License-Identifier: Apache-2.0

package root

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
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
	at, err := up.Lstat(name)
	there := err == nil
	var below fs.FileInfo
	if errors.Is(err, fs.ErrNotExist) {
		below, err = r.Lstat(name)
		at = below
	}
	if err == nil && !at.IsDir() {
		return fmt.Errorf("make directory /%s: there is a %s", name, describeType(at.Mode()))
	}
	if there || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
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
