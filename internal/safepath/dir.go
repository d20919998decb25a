// SPDX-License-Identifier: Apache-2.0

package safepath

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Thing describes the present or the wanted content of a name: a file, a symbolic link, an
// empty directory; the zero value is nothing. What is looked at may be a pipe or a device
// as well, and a directory that is not empty.
type Thing struct {
	Mode    uint32 // with its type, as stat(2) has it; a link has no more than that
	UID     int
	GID     int
	Content []byte // of a file
	Target  string // of a link
}

// Type returns the bits of Mode that tell a file, a link and a directory apart.
func (t Thing) Type() uint32 { return t.Mode & unix.S_IFMT }

// Dir is a directory that is held open. It stays the same one when another process renames
// a part of the way to it; the names in it may be another user's to change at any moment.
type Dir struct{ *os.File }

// Hold opens one directory alone, see [Walk.Hold].
func Hold(path string) (Dir, error) {
	var w Walk
	defer w.Close()
	return w.Hold(path)
}

// Hold opens a directory for what is done in it.
func (w *Walk) Hold(path string) (Dir, error) {
	if err := w.enter(path); err != nil {
		return Dir{}, err
	}
	fd, err := unix.Openat(w.top().fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Dir{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return Dir{os.NewFile(uintptr(fd), path)}, nil
}

// Below opens a directory below this one, "." for this one itself. No link leads to it.
func (d Dir) Below(path string) (Dir, error) {
	fd, err := unix.Openat2(d.fd(), path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return Dir{}, d.failed("open", path, err)
	}
	return Dir{os.NewFile(uintptr(fd), d.File.Name()+"/"+path)}, nil
}

func (d Dir) fd() int { return int(d.Fd()) }

// open opens a name with O_PATH, a link itself and not what it leads to.
func (d Dir) open(name string) (fd int, st unix.Stat_t, err error) {
	return stated(unix.Openat(d.fd(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0))
}

// stated is a descriptor that was opened with O_PATH, and what it is of.
func stated(fd int, err error) (int, unix.Stat_t, error) {
	var st unix.Stat_t
	if err != nil {
		return -1, st, err
	}
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd) // an O_PATH descriptor has nothing to lose
		return -1, st, err
	}
	return fd, st, nil
}

// Look returns what stands at a name. Owner, mode and content are of one and the same
// file, whatever is put in its place meanwhile. A file of more than limit bytes is an
// error.
func (d Dir) Look(name string, limit int64) (t Thing, err error) {
	fd, st, err := d.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, d.failed("open", name, err)
	}
	defer unix.Close(fd) // only read
	t = Thing{Mode: st.Mode, UID: int(st.Uid), GID: int(st.Gid)}
	switch t.Type() {
	case unix.S_IFLNK:
		t.Mode = unix.S_IFLNK
		t.Target, err = readlink(fd)
	case unix.S_IFREG:
		t.Content, err = content(fd, limit)
	}
	if err != nil {
		return t, d.failed("read", name, err)
	}
	return t, nil
}

func content(fd int, limit int64) ([]byte, error) {
	f, err := os.OpenFile(Name(fd), os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("the file that is there has more than %d bytes: it could not be kept", limit)
	}
	return data, err
}

func readlink(fd int) (string, error) {
	to := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", to)
	return string(to[:max(n, 0)]), err
}

// Empty reports whether there is nothing in the directory.
func (d Dir) Empty() (bool, error) {
	again, err := os.Open(Name(d.fd())) // with a position of its own
	if err != nil {
		return false, err
	}
	defer again.Close() // only read
	_, err = again.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

func (d Dir) unlink(name string) error {
	err := unix.Unlinkat(d.fd(), name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(d.fd(), name, unix.AT_REMOVEDIR)
	}
	return err
}

func (d Dir) failed(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: filepath.Join(d.File.Name(), name), Err: err}
}

// Beneath opens a path below a directory. Links are followed as long as they stay below
// it, those of /proc are not. Flags are those of openat(2), resolve says what else is
// forbidden, see openat2(2).
//
// Where a name is renamed, or something mounted, anywhere on the machine while the
// kernel follows "..", as of a link, it cannot be sure that it stayed below and says
// EAGAIN. On a node that starts containers this is common, so it is asked again.
func Beneath(dir int, path string, flags int, resolve uint64) (fd int, err error) {
	const tries = 1000 // a process that renames without an end holds no caller up
	how := unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | resolve}
	for range tries {
		if fd, err = unix.Openat2(dir, path, &how); err != unix.EAGAIN && err != unix.EINTR {
			break
		}
	}
	return fd, err
}
