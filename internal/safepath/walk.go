// SPDX-License-Identifier: Apache-2.0

// Package safepath opens paths for a root program in places where other users
// can write: a symbolic link of theirs is refused, on the way and at the end.
//
// Each directory is opened from the one before it with openat2(2), and what is
// done is done to the descriptor: no user can put another file in its place
// between the look and the act. What is put somewhere is made beside it, under a
// name that no other process knew, and gets its owner and mode by its descriptor, see
// [Dir.Put]. Links of the system itself, such as /bin, are followed: root owns
// them and only root can change the directory that holds them. The package does not judge what a file is for. It imports no other
// package of this module.
package safepath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrLink is returned where a symbolic link that is not the system's own would
// have to be followed.
var ErrLink = errors.New("a symbolic link that a user could have made is not followed")

// maxLinks is how many links one path may lead through, as in path_resolution(7).
const maxLinks = 40

// Walk opens paths one after another and keeps the directories of the last one
// open, so that sorted paths cost one system call a component that differs. The
// zero value is ready for use by one goroutine at a time; Close frees it.
type Walk struct {
	dirs []dir // from the root on
}

// dir is an open directory on the way.
type dir struct {
	name string
	fd   int // O_PATH
	st   unix.Stat_t
}

// Close closes the directories that are kept open.
func (w *Walk) Close() { w.pop(0) }

func (w *Walk) pop(n int) {
	for _, d := range w.dirs[n:] {
		_ = unix.Close(d.fd) // an O_PATH descriptor has nothing to lose
	}
	w.dirs = w.dirs[:n]
}

func (w *Walk) top() dir { return w.dirs[len(w.dirs)-1] }

// Open opens path, which is absolute and clean, with O_PATH: to look at it with
// fstat and to change it through /proc/self/fd. The caller closes it. The file
// itself is never a link: that is ErrLink.
func (w *Walk) Open(path string) (fd int, st unix.Stat_t, err error) {
	if err := w.enter(filepath.Dir(path)); err != nil {
		return -1, st, err
	}
	name := filepath.Base(path)
	if path == "/" {
		name = "."
	}
	if fd, st, err = w.step(name); err != nil {
		return -1, st, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		_ = unix.Close(fd) // as above
		return -1, st, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w; name what it points to", ErrLink)}
	}
	return fd, st, nil
}

// Stranger returns the owner of the first directory on the way to the last path
// that belongs neither to root, nor to this process, nor to one of uids. Such
// an owner decides what lies at the path.
func (w *Walk) Stranger(uids ...uint32) (dir string, uid uint32, found bool) {
	for _, d := range w.dirs {
		dir = filepath.Join("/", dir, d.name)
		ok := d.st.Uid == 0 || int(d.st.Uid) == os.Geteuid()
		for _, uid := range uids {
			ok = ok || d.st.Uid == uid
		}
		if !ok {
			return dir, d.st.Uid, true
		}
	}
	return "", 0, false
}

// Resolve returns path with the system's own links resolved. What of it does not
// exist yet is taken as it is written.
func (w *Walk) Resolve(path string) (string, error) {
	rest := ""
	for {
		err := w.enter(path)
		if err == nil {
			return filepath.Join(w.path(), rest), nil
		}
		if errors.Is(err, unix.ENOTDIR) { // a file, the target of a bind mount
			fd, _, err := w.Open(path)
			if err != nil {
				return "", err
			}
			_ = unix.Close(fd) // as above
			return filepath.Join(w.path(), filepath.Base(path), rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		rest = filepath.Join(filepath.Base(path), rest)
		path = filepath.Dir(path)
	}
}

// path is the directory that the walk stands in, without links.
func (w *Walk) path() string {
	at := "/"
	for _, d := range w.dirs {
		at = filepath.Join(at, d.name)
	}
	return at
}

// enter goes to a directory, from where the last path and this one part.
func (w *Walk) enter(path string) error {
	if len(w.dirs) == 0 {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: "/", Err: err}
		}
		w.dirs = append(w.dirs, dir{name: "/", fd: fd})
		if err := unix.Fstat(fd, &w.dirs[0].st); err != nil {
			return &fs.PathError{Op: "stat", Path: "/", Err: err}
		}
	}
	todo := split(path)
	depth := 0
	for depth < len(todo) && depth+1 < len(w.dirs) && w.dirs[depth+1].name == todo[depth] {
		depth++
	}
	w.pop(depth + 1)
	todo = todo[depth:]
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		if name == ".." { // of a link; what is open was reached without one
			w.pop(max(1, len(w.dirs)-1))
			continue
		}
		fd, st, err := w.step(name)
		if err != nil {
			return &fs.PathError{Op: "open", Path: path, Err: err}
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			w.dirs = append(w.dirs, dir{name, fd, st})
			continue
		case unix.S_IFLNK:
			to, err := w.follow(fd, st)
			if links++; err == nil && links > maxLinks {
				err = unix.ELOOP
			}
			if err != nil {
				return &fs.PathError{Op: "open", Path: filepath.Join(w.path(), name), Err: err}
			}
			if filepath.IsAbs(to) {
				w.pop(1)
			}
			todo = append(split(to), todo...)
		default:
			_ = unix.Close(fd) // as above
			return &fs.PathError{Op: "open", Path: filepath.Join(w.path(), name), Err: unix.ENOTDIR}
		}
	}
	return nil
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// step opens one name in the directory that the walk stands in.
func (w *Walk) step(name string) (int, unix.Stat_t, error) {
	return stated(unix.Openat2(w.top().fd, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}))
}

// systems reports whether a link in a directory is one that only root can have
// made and only root can replace.
var systems = func(link, in unix.Stat_t) bool {
	return link.Uid == 0 && in.Uid == 0 && in.Mode&0o022 == 0
}

// follow reads and closes a link, if it is the system's own.
func (w *Walk) follow(fd int, st unix.Stat_t) (string, error) {
	defer unix.Close(fd) // an O_PATH descriptor has nothing to lose
	if !systems(st, w.top().st) {
		return "", ErrLink
	}
	return readlink(fd)
}

// Name returns the name by which system calls without a descriptor reach one.
func Name(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// Glob returns the sorted paths that match a pattern of filepath.Match's syntax,
// which is absolute and clean. A directory that cannot be entered, such as a
// link, is returned in place of what it holds, for Open to say why.
func (w *Walk) Glob(pattern string) ([]string, error) {
	if _, err := filepath.Match(pattern, ""); err != nil {
		return nil, err
	}
	return w.glob("/", split(pattern))
}

func (w *Walk) glob(at string, parts []string) ([]string, error) {
	if len(parts) == 0 {
		return []string{at}, nil
	}
	part, rest := parts[0], parts[1:]
	if !strings.ContainsAny(part, `*?[\`) {
		next := filepath.Join(at, part)
		if len(rest) > 0 {
			return w.glob(next, rest)
		}
		fd, _, err := w.Open(next)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return nil, nil
		}
		if err == nil {
			_ = unix.Close(fd) // an O_PATH descriptor has nothing to lose
		}
		return []string{next}, nil
	}
	names, err := w.list(at)
	switch {
	case errors.Is(err, ErrLink):
		return []string{at}, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil, nil
	case err != nil:
		return nil, err
	}
	var found []string
	for _, name := range names {
		if ok, err := filepath.Match(part, name); err != nil || !ok {
			continue // Glob has seen that the pattern is well formed
		}
		more, err := w.glob(filepath.Join(at, name), rest)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// list returns the sorted names in a directory.
func (w *Walk) list(path string) ([]string, error) {
	d, err := w.Hold(path)
	if err != nil {
		return nil, err
	}
	defer d.Close() // read only
	names, err := d.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}
