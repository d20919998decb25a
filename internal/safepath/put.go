// SPDX-License-Identifier: Apache-2.0

package safepath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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
