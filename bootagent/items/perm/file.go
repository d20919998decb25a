// SPDX-License-Identifier: Apache-2.0

package perm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
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

// Restore implements item.Item.
func (i *Item) Restore(ctx context.Context, entries []item.Entry) error {
	var walk safepath.Walk
	defer walk.Close()
	var errs []error
	var done []item.Entry
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := i.restore(ctx, &walk, e); err != nil {
			errs = append(errs, fmt.Errorf("restore permissions of %s: %w", e.Key, err))
			continue
		}
		done = append(done, e)
	}
	return errors.Join(append(errs, item.Forget(ctx, i.journal, done...))...)
}

func (i *Item) restore(ctx context.Context, walk *safepath.Walk, e item.Entry) error {
	was := item.Was[attr](e)
	f, err := open(walk, e.Key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		i.log("%s is gone: its permissions cannot be put back", e.Key)
		return nil
	case errors.Is(err, safepath.ErrLink):
		i.log("%s is reached by a link since: its permissions are left as they are", e.Key)
		return nil
	case err != nil:
		return err
	}
	defer f.close()
	to, why := i.original(walk, f, e)
	if why != "" {
		i.log("%s %s: its permissions are left as they are", e.Key, why)
		return nil
	}
	if to.Mode != was.Mode {
		i.log("others could write to %s since: set-user-ID and set-group-ID are not put back", e.Key)
	}
	_, err = f.set(ctx, to)
	return err
}

// original returns the permissions that a file gets back, or why it gets none.
func (i *Item) original(walk *safepath.Walk, f file, e item.Entry) (to attr, why string) {
	was, did := item.Was[attr](e), item.Did[applied](e)
	if e.Scope == item.Disk && i.scope(f.dev) != item.Disk { // the disk may have been in other hands
		return f.attr, "is not on the state disk"
	}
	if !f.attr.same(was) && !f.attr.same(did.Attr) && (did.Attr.Ino != 0 || !f.attr.is(did.Attr)) {
		return f.attr, "was replaced since"
	}
	if dir, uid, found := walk.Stranger(was.UID, did.Attr.UID); found {
		return f.attr, fmt.Sprintf("is in %s, which belongs to user %d since", dir, uid)
	}
	if mode := f.without(was.Mode); mode != was.Mode && wasLent(was, did.Attr, f.attr) {
		was.Mode = mode
	}
	return was, ""
}

// wasLent reports whether a user whom the original did not let write may have
// written to the file since: its text is then not what the bits were given to.
var wasLent = func(was, did, now attr) bool {
	return slices.ContainsFunc([]attr{did, now}, func(a attr) bool {
		return a.UID != was.UID || a.GID != was.GID && a.Mode&0o020 != 0 || a.Mode&0o022&^was.Mode != 0
	})
}

// Adopt returns entries with what is wanted as the original of what is. A path that
// is not there has nothing to put back.
func (i *Item) Adopt() (entries []item.Entry, err error) {
	var walk safepath.Walk
	defer walk.Close()
	list, drift := i.wishes(&walk)
	for _, d := range drift {
		err = errors.Join(err, fmt.Errorf("%s: %s", d.Key, d.Reason))
	}
	for _, w := range list {
		f, openErr := open(&walk, w.path)
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		f.close()
		was := w.to(f)
		entries = append(entries, item.Entry{Item: Name, Key: w.path, Prior: item.Raw(was),
			Applied: item.Raw(applied{Attr: f.attr}), Scope: i.scope(f.dev)})
	}
	return entries, err
}
