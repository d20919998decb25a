// SPDX-License-Identifier: Apache-2.0

package safepath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

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
	if err := w.enter(path); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(w.top().fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	d := os.NewFile(uintptr(fd), path)
	defer d.Close() // read only
	names, err := d.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}
