// SPDX-License-Identifier: Apache-2.0

package safepath

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrReplaced is returned where another process has put another file in the place of one that
// was made just now.
var ErrReplaced = errors.New("somebody has replaced what was made just now")

// Put is [Batch.Put] for one thing, which is durable then.
func (d Dir) Put(name string, t Thing) error {
	var b Batch
	return errors.Join(b.Put(d, name, t), b.Sync())
}

// MakeDir is [Batch.MakeDir] for one directory, which is durable then.
func (d Dir) MakeDir(name string, mode uint32, uid, gid int) error {
	var b Batch
	return errors.Join(b.MakeDir(d, name, mode, uid, gid), b.Sync())
}

// Remove is [Batch.Remove] for one name; it is durable then.
func (d Dir) Remove(name string) error {
	var b Batch
	return errors.Join(b.Remove(d, name), b.Sync())
}

// put makes a new thing beside a name and moves it there.
func (d Dir) put(name string, t Thing) (err error) {
	temp := temporary(name)
	defer func() {
		if err != nil {
			_ = d.unlink(temp) // err says what failed; the next one is swept
		}
	}()
	switch t.Type() {
	case unix.S_IFREG:
		err = d.makeFile(temp, t)
	case unix.S_IFLNK:
		err = d.makeLink(temp, t)
	case unix.S_IFDIR:
		err = d.makeDir(temp, t.Mode, t.UID, t.GID)
	default:
		return errors.New("it is neither a file, a link nor a directory")
	}
	if err != nil {
		return err
	}
	return d.move(temp, name, t)
}

func (d Dir) makeFile(name string, t Thing) error {
	fd, err := unix.Openat(d.fd(), name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(t.Content)
	if err == nil {
		err = unix.Fchown(fd, t.UID, t.GID)
	}
	if err == nil {
		err = unix.Fchmod(fd, t.Mode&0o7777) // in this order: chown(2) drops set-user-ID
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (d Dir) makeLink(name string, t Thing) error {
	if err := unix.Symlinkat(t.Target, d.fd(), name); err != nil {
		return err
	}
	fd, st, err := d.open(name)
	if err != nil {
		return err
	}
	defer unix.Close(fd) // an O_PATH descriptor has nothing to lose
	to, err := readlink(fd)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK || to != t.Target {
		return errors.Join(ErrReplaced, err)
	}
	return unix.Fchownat(fd, "", t.UID, t.GID, unix.AT_EMPTY_PATH)
}

// makeDir makes a directory. Until it has its owner it is this process's alone. What another process has put in its
// place since is not touched, unless it is as empty as a new one, and as closed or of this
// process's user: over a network the owner may say nothing, and FAT knows no modes.
func (d Dir) makeDir(name string, mode uint32, uid, gid int) error {
	if err := unix.Mkdirat(d.fd(), name, 0o700); err != nil {
		return err
	}
	fd, err := unix.Openat(d.fd(), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	made := Dir{os.NewFile(uintptr(fd), name)}
	defer made.Close() // what matters was synced
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	empty, err := made.Empty()
	if err != nil || !empty || st.Mode&0o077 != 0 && int(st.Uid) != os.Geteuid() {
		return errors.Join(ErrReplaced, err)
	}
	if err := unix.Fchown(fd, uid, gid); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, mode&0o7777); err != nil {
		return err
	}
	return made.Sync()
}

// move puts what was made in its place. What rename(2) does not replace, a directory by
// something else or something by a directory, changes places with it and is removed then.
func (d Dir) move(temp, name string, t Thing) error {
	var st unix.Stat_t
	err := unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR && t.Type() != unix.S_IFDIR {
		return unix.Renameat(d.fd(), temp, d.fd(), name)
	}
	exchange := func() error { return unix.Renameat2(d.fd(), temp, d.fd(), name, unix.RENAME_EXCHANGE) }
	if err := exchange(); err != nil {
		return err
	}
	if err := d.unlink(temp); err != nil { // something was put into it just now
		return errors.Join(err, exchange())
	}
	return nil
}

// MkdirAll makes the directories of path that are missing, mode 0755 whatever
// the umask is, owned by this process.
func (w *Walk) MkdirAll(path string) error { return w.MkdirAllFor(path, -1, -1) }

// MkdirAllFor is MkdirAll for an owner; an id of -1 is this process's.
func (w *Walk) MkdirAllFor(path string, uid, gid int) error {
	err := w.enter(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := w.MkdirAllFor(filepath.Dir(path), uid, gid); err != nil {
		return err
	}
	in, err := w.Hold(filepath.Dir(path))
	if err != nil {
		return err
	}
	err = in.MakeDir(filepath.Base(path), 0o755, uid, gid)
	_ = in.Close() // a directory has nothing left to write
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return w.enter(path)
}

// Create makes path an empty file, mode 0644 less the umask, unless there is one. What is there
// and not a file is left alone.
func (w *Walk) Create(path string) error {
	if err := w.MkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	fd, err := unix.Openat(w.top().fd, filepath.Base(path), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "create", Path: path, Err: err}
	}
	return unix.Close(fd)
}

// Remove removes an empty directory or a file, durably, and what a killed process left
// that made it.
func (w *Walk) Remove(path string) error {
	in, err := w.Hold(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer in.Close() // what matters is synced by the batch
	var b Batch
	if err := errors.Join(b.remove(in, filepath.Base(path), Dir.unlink), b.Sync()); err != nil {
		return in.failed("remove", filepath.Base(path), err)
	}
	return nil
}

// Batch is one pass of changes. In each directory it looks once for what a killed process
// left, and makes what was done durable once, by Sync. The zero value is ready for use by
// one goroutine; who used it calls Sync, and only then is anything sure to be on the disk.
type Batch struct {
	dirs []*entered
	lost error // what was done before is not durable, though the pass went on
}

// entered is a directory that a batch has changed something in.
type entered struct {
	Dir
	dev, ino uint64
	left     map[string][]string // temporary names by the stem that they begin with
}

func (in *entered) is(st unix.Stat_t) bool { return in.dev == st.Dev && in.ino == st.Ino }

// held is how many directories a batch keeps open: what it did in them is made durable
// before it goes on.
const held = 16

// Put makes what stands at a name be t, by one rename: a new file gets content, owner and
// mode by its descriptor, under a name that no other process knows before, and is durable itself.
func (b *Batch) Put(d Dir, name string, t Thing) error {
	in, err := b.enter(d)
	if err != nil {
		return d.failed("put", name, err)
	}
	in.sweep(name)
	if err := in.put(name, t); err != nil {
		return d.failed("put", name, err)
	}
	return nil
}

// MakeDir makes a directory, with this mode whatever the umask is; an id of -1 is this
// process's. It has its name when it has its owner and mode: cut in between, it is not
// there, and what is left is swept by who makes or removes it. What is there is
// fs.ErrExist.
func (b *Batch) MakeDir(d Dir, name string, mode uint32, uid, gid int) error {
	in, err := b.enter(d)
	if err != nil {
		return err
	}
	in.sweep(name)
	var st unix.Stat_t
	if unix.Fstatat(in.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return fs.ErrExist
	}
	temp := temporary(name)
	if err := in.makeDir(temp, mode, uid, gid); err != nil {
		return err
	}
	err = unix.Renameat2(in.fd(), temp, in.fd(), name, unix.RENAME_NOREPLACE)
	if err == nil {
		return in.Sync() // else what is put into it may be found under the other name, which is not swept then
	}
	_ = in.unlink(temp)              // err says what failed; the next one is swept
	if errors.Is(err, unix.EINVAL) { // such as NFS, which knows no such rename
		return in.makeDir(name, mode, uid, gid)
	}
	return err
}

// Remove removes a file, a link or an empty directory. Nothing there is not an error.
func (b *Batch) Remove(d Dir, name string) error {
	if err := b.remove(d, name, Dir.unlink); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.failed("remove", name, err)
	}
	return nil
}

// RemoveDir removes an empty directory. Nothing there is fs.ErrNotExist, and what is not a
// directory unix.ENOTDIR.
func (b *Batch) RemoveDir(d Dir, name string) error {
	return b.remove(d, name, func(d Dir, name string) error {
		var st unix.Stat_t
		found := unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		err := unix.Unlinkat(d.fd(), name, unix.AT_REMOVEDIR)
		if err == nil && found == nil { // what is gone has nothing to be made durable
			b.dirs = slices.DeleteFunc(b.dirs, func(in *entered) bool { return in.is(st) && in.Close() == nil })
		}
		return err
	})
}

func (b *Batch) remove(d Dir, name string, unlink func(Dir, string) error) error {
	in, err := b.enter(d)
	if err != nil {
		return err
	}
	in.sweep(name)
	return unlink(in.Dir, name)
}

// Sync makes what was done durable and ends the pass. An error says that any of what was
// done in the pass, and not only what was done last, may be lost.
func (b *Batch) Sync() error {
	err := errors.Join(b.lost, b.flush())
	b.lost = nil
	return err
}

// flush makes durable what was done in the directories that are held, and lets go of them.
func (b *Batch) flush() error {
	var errs []error
	for _, in := range b.dirs {
		errs = append(errs, in.Sync(), in.Close())
	}
	b.dirs = nil
	return errors.Join(errs...)
}

// enter finds a directory among those of the pass, whatever descriptor it comes by.
func (b *Batch) enter(d Dir) (*entered, error) {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd(), &st); err != nil {
		return nil, err
	}
	for _, in := range b.dirs {
		if in.is(st) {
			return in, nil
		}
	}
	if len(b.dirs) == held {
		if err := b.flush(); err != nil { // of what was done already, which only Sync can tell
			b.lost = errors.Join(b.lost, err)
			return nil, err
		}
	}
	// Opened again, not duplicated: it is read, and that moves a position.
	fd, err := unix.Openat(d.fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	in := &entered{Dir: Dir{os.NewFile(uintptr(fd), d.File.Name())}, dev: st.Dev, ino: st.Ino, left: map[string][]string{}}
	names, _ := in.Readdirnames(-1) // what is not seen is not swept, and costs room only
	for _, name := range names {
		if of, is := stemOf(name); is {
			in.left[of] = append(in.left[of], name)
		}
	}
	b.dirs = append(b.dirs, in)
	return in, nil
}

// sweep removes what a process left that was killed as it put something at a name.
func (in *entered) sweep(name string) {
	of := stem(name)
	for _, left := range in.left[of] {
		_ = in.unlink(left) // it costs room only
	}
	delete(in.left, of)
}

// longest is a name, in bytes, that is kept whole in a temporary one, which has 21 more.
const longest = unix.NAME_MAX - 40

// stem returns the beginning of the temporary names for a name.
func stem(name string) string {
	if len(name) <= longest {
		return "." + name + "."
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(name)) // a hash takes everything
	return fmt.Sprintf(".%s.%x.", strings.ToValidUTF8(name[:longest-17], ""), sum.Sum64())
}

// temporary is a name that no other process knows before, beside a name.
func temporary(name string) string { return fmt.Sprintf("%s%d", stem(name), rand.Uint64()) }

// stemOf is the stem of a temporary name.
func stemOf(name string) (string, bool) {
	of := strings.TrimRight(name, "0123456789")
	return of, len(of) < len(name) && len(of) > 2 && of[0] == '.' && of[len(of)-1] == '.'
}
