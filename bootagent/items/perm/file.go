// SPDX-License-Identifier: Apache-2.0

package perm

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/safepath"
)

// file is an open file and what it was when it was opened.
type file struct {
	fd   int
	dev  uint64
	dir  bool
	attr attr
}

// open opens path itself, through no link that a user could have made. Stranger
// of the walk then answers for this path.
func open(w *safepath.Walk, path string) (file, error) {
	fd, st, err := w.Open(path)
	if err != nil {
		return file{}, err
	}
	f := file{fd: fd, dev: st.Dev, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}
	f.attr = attr{UID: st.Uid, GID: st.Gid, Mode: st.Mode & 0o7777, Ino: st.Ino, Born: born(fd)}
	return f, nil
}

func (f file) close() { _ = unix.Close(f.fd) } // an O_PATH descriptor has nothing to lose

func (f file) stat() (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstat(f.fd, &st)
	return st, err
}

// born is when the file was made, in nanoseconds, 0 where the file system does
// not keep that. An inode's number is given to the next file, its birth is not.
func born(fd int) int64 {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st); err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
}

// set gives the file the permissions want and returns what it is after. It does
// nothing by halves: when a step fails, what was is put back.
func (f file) set(ctx context.Context, want attr) (attr, error) {
	if err := ctx.Err(); err != nil {
		return attr{}, err
	}
	if err := f.change(ctx, want); err != nil {
		if ctx.Err() != nil {
			return attr{}, err
		}
		was := f.attr
		if was.UID != want.UID || was.GID != want.GID {
			was.Mode = f.without(was.Mode)
		}
		return attr{}, errors.Join(err, f.change(ctx, was))
	}
	st, err := f.stat()
	if err != nil {
		return attr{}, err
	}
	got := attr{UID: st.Uid, GID: st.Gid, Mode: st.Mode & 0o7777, Ino: st.Ino, Born: born(f.fd)}
	if !got.is(want) {
		return attr{}, fmt.Errorf("the file system keeps %v instead of %v", got, want)
	}
	return got, nil
}

// without is the mode that a change of owner leaves, as chown(2) has it: a
// program that ran as its old owner does not run as the new one.
func (f file) without(mode uint32) uint32 {
	if f.dir {
		return mode
	}
	return mode &^ setID
}

// change sets the owner, then the mode. chown(2) drops set-user-ID, set-group-ID
// and file capabilities; only the mode wanted brings any of them back.
func (f file) change(ctx context.Context, want attr) error {
	st, err := f.stat()
	if err != nil {
		return err
	}
	if st.Uid != want.UID || st.Gid != want.GID {
		if err := unix.Fchownat(f.fd, "", int(want.UID), int(want.GID), unix.AT_EMPTY_PATH); err != nil {
			return fmt.Errorf("chown to %d:%d: %w", want.UID, want.GID, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if st, err = f.stat(); err != nil {
			return err
		}
	}
	if st.Mode&0o7777 != want.Mode {
		if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", f.fd), want.Mode); err != nil {
			return fmt.Errorf("chmod to %04o: %w", want.Mode, err)
		}
	}
	return nil
}
