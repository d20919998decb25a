// SPDX-License-Identifier: Apache-2.0

package perm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// file is an open file and what it was when it was opened.
type file struct {
	fd   int
	dev  uint64
	dir  bool
	attr attr
}

// open opens path itself, never what a symbolic link there points to.
func open(path string) (file, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return file{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := file{fd: fd}
	st, err := f.stat()
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		err = errors.New("it is a symbolic link; name what it points to")
	}
	if err != nil {
		f.close()
		return file{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f.dev, f.dir = st.Dev, st.Mode&unix.S_IFMT == unix.S_IFDIR
	f.attr = attr{UID: st.Uid, GID: st.Gid, Mode: st.Mode & 0o7777, Ino: st.Ino}
	return f, nil
}

func (f file) close() { unix.Close(f.fd) }

func (f file) stat() (unix.Stat_t, error) {
	var st unix.Stat_t
	return st, unix.Fstat(f.fd, &st)
}

// proc is the name by which calls without AT_EMPTY_PATH reach the file.
func (f file) proc() string { return fmt.Sprintf("/proc/self/fd/%d", f.fd) }

const capability = "security.capability"

// set makes path's permissions want and returns its inode after. It does nothing
// by halves: when a step fails, what was is put back.
func set(ctx context.Context, path string, want attr) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	f, err := open(path)
	if err != nil {
		return 0, err
	}
	defer f.close()
	if err := f.change(ctx, want); err != nil {
		if ctx.Err() != nil {
			return 0, err
		}
		return 0, errors.Join(err, f.change(ctx, f.attr))
	}
	st, err := f.stat()
	if err != nil {
		return 0, err
	}
	if got := (attr{UID: st.Uid, GID: st.Gid, Mode: st.Mode & 0o7777}); !got.is(want) {
		return 0, fmt.Errorf("the file system keeps %v instead of %v", got, want)
	}
	return st.Ino, nil
}

// change sets the owner, then the mode. chown(2) drops setuid, setgid and file
// capabilities; the mode brings back the first two.
func (f file) change(ctx context.Context, want attr) error {
	st, err := f.stat()
	if err != nil {
		return err
	}
	if st.Uid != want.UID || st.Gid != want.GID {
		caps := make([]byte, 64)
		n, capsErr := unix.Getxattr(f.proc(), capability, caps)
		if err := unix.Fchownat(f.fd, "", int(want.UID), int(want.GID), unix.AT_EMPTY_PATH); err != nil {
			return fmt.Errorf("chown to %d:%d: %w", want.UID, want.GID, err)
		}
		if capsErr == nil && n > 0 {
			if err := unix.Setxattr(f.proc(), capability, caps[:n], 0); err != nil {
				return fmt.Errorf("keep file capabilities: %w", err)
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if st, err = f.stat(); err != nil {
			return err
		}
	}
	if st.Mode&0o7777 != want.Mode {
		if err := unix.Chmod(f.proc(), want.Mode); err != nil {
			return fmt.Errorf("chmod to %04o: %w", want.Mode, err)
		}
	}
	return nil
}
