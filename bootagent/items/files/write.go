// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/durable"
)

// maxOriginal caps a file that is kept as an original, in bytes.
const maxOriginal = 256 << 10

// directory opens a directory below etc without following a link on the way.
func (i *Item) directory(rel string) (*os.File, error) {
	etc, err := unix.Open(i.etc, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: i.etc, Err: err}
	}
	defer unix.Close(etc) // opened for its path only
	fd, err := unix.Openat2(etc, rel, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if errors.Is(err, unix.ELOOP) {
		err = errors.New("a symbolic link is on the way")
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/etc/" + rel, Err: err}
	}
	return os.NewFile(uintptr(fd), rel), nil
}

// entry is the name of a directory's entry that no rename on the way changes.
func entry(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}

// read returns what stands at a path of the overlay.
func (i *Item) read(path string) (state, error) {
	rel, err := below(path)
	if err != nil {
		return state{}, err
	}
	dir, err := i.directory(filepath.Dir(rel))
	if errors.Is(err, fs.ErrNotExist) {
		return i.missing(rel)
	}
	if err != nil {
		return state{}, err
	}
	defer dir.Close() // read only
	name := filepath.Base(rel)
	var st unix.Stat_t
	err = unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	s := state{Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.Kind = regular
		s.Content, err = contentOf(dir, name)
	case unix.S_IFLNK:
		s.Kind, s.Mode = link, 0
		s.Target, err = os.Readlink(entry(dir, name))
	default:
		err = fmt.Errorf("%s is there and is not a file", path)
	}
	return s, err
}

func contentOf(dir *os.File, name string) (string, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close() // read only
	data, err := io.ReadAll(io.LimitReader(f, maxOriginal+1))
	if err == nil && len(data) > maxOriginal {
		err = fmt.Errorf("%s is there and has more than %d bytes", name, maxOriginal)
	}
	return string(data), err
}

// missing is the state of a path whose directory is not there.
func (i *Item) missing(rel string) (state, error) {
	var s state
	for dir := filepath.Dir(rel); dir != "."; dir = filepath.Dir(dir) {
		d, err := i.directory(dir)
		if err == nil {
			return s, d.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
		s.Missing = slices.Insert(s.Missing, 0, dir)
	}
	return s, nil
}

// write makes what stands at a path to be s.
func (i *Item) write(path string, s state) error {
	rel, err := below(path)
	if err != nil {
		return err
	}
	if s.Kind == absent {
		return i.remove(rel, s.Missing)
	}
	dir, err := i.make(filepath.Dir(rel))
	if err != nil {
		return err
	}
	defer dir.Close() // what matters was synced
	name := filepath.Base(rel)
	i.sweep(dir, name)
	if s.Kind == link {
		return relink(dir, name, s)
	}
	return durable.Write(entry(dir, name), fileMode(s.Mode), func(w io.Writer) error {
		if err := w.(*os.File).Chown(s.UID, s.GID); err != nil { // before the mode: chown(2) drops set-uid
			return err
		}
		_, err := io.WriteString(w, s.Content)
		return err
	})
}

// fileMode converts permission bits as stat(2) has them: an original may be
// set-uid, a wanted file is not.
func fileMode(mode uint32) os.FileMode {
	m := os.FileMode(mode).Perm()
	for bit, to := range map[uint32]os.FileMode{unix.S_ISUID: os.ModeSetuid, unix.S_ISGID: os.ModeSetgid, unix.S_ISVTX: os.ModeSticky} {
		if mode&bit != 0 {
			m |= to
		}
	}
	return m
}

// relink puts a link back by one rename.
func relink(dir *os.File, name string, s state) error {
	temp := "." + name + ".link"
	if err := unix.Symlinkat(s.Target, int(dir.Fd()), temp); err != nil {
		return &fs.PathError{Op: "symlink", Path: name, Err: err}
	}
	if err := unix.Fchownat(int(dir.Fd()), temp, s.UID, s.GID, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "chown", Path: name, Err: err}
	}
	return durable.Rename(entry(dir, temp), entry(dir, name))
}

// make opens a directory below etc and makes what is missing of it.
func (i *Item) make(rel string) (*os.File, error) {
	dir, err := i.directory(".")
	if err != nil || rel == "." {
		return dir, err
	}
	at := ""
	for part := range strings.SplitSeq(rel, "/") {
		made := unix.Mkdirat(int(dir.Fd()), part, 0o755)
		if made != nil && !errors.Is(made, fs.ErrExist) {
			return nil, errors.Join(&fs.PathError{Op: "mkdir", Path: rel, Err: made}, dir.Close())
		}
		if err := dir.Close(); err != nil {
			return nil, err
		}
		at = filepath.Join(at, part)
		if dir, err = i.directory(at); err != nil {
			return nil, err
		}
		if made == nil { // whatever the umask is
			if err := dir.Chmod(0o755); err != nil {
				return nil, errors.Join(err, dir.Close())
			}
		}
	}
	return dir, nil
}

// remove deletes a file, and those of the directories that are empty then.
func (i *Item) remove(rel string, made []string) error {
	dir, err := i.directory(filepath.Dir(rel))
	if errors.Is(err, fs.ErrNotExist) {
		return i.unmake(made)
	}
	if err != nil {
		return err
	}
	i.sweep(dir, filepath.Base(rel))
	if err := errors.Join(durable.Remove(entry(dir, filepath.Base(rel))), dir.Close()); err != nil {
		return err
	}
	return i.unmake(made)
}

// unmake removes directories, innermost first, as far as they are empty.
func (i *Item) unmake(made []string) error {
	for _, rel := range slices.Backward(made) {
		dir, err := i.directory(filepath.Dir(rel))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = unix.Unlinkat(int(dir.Fd()), filepath.Base(rel), unix.AT_REMOVEDIR)
		if err := errors.Join(dir.Sync(), dir.Close()); err != nil { // it is forgotten next, that it was made here
			return err
		}
		switch {
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
			return nil // somebody else's by now
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return &fs.PathError{Op: "rmdir", Path: "/etc/" + rel, Err: err}
		}
	}
	return nil
}

// sweep removes what a process left that was killed as it wrote name.
func (i *Item) sweep(dir *os.File, name string) {
	entries, err := os.ReadDir(entry(dir, "."))
	if err != nil {
		return // the write that follows says what is wrong
	}
	for _, e := range entries {
		suffix, ours := strings.CutPrefix(e.Name(), "."+name+".")
		if ours && e.Type().IsRegular() && strings.Trim(suffix, "0123456789") == "" || e.Name() == "."+name+".link" {
			_ = os.Remove(entry(dir, e.Name())) // a leftover costs room only
		}
	}
}
