// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Caps on what an image of accounts may have, and on a file that goes to the journal.
const (
	maxFiles    = 100_000
	maxFile     = 512 << 10
	maxDatabase = 16 << 20
	maxHome     = 1 << 20
)

// Change holds the values of one key in the stacked image and in the wanted one.
type Change struct {
	Key  string `json:"key"`
	From Value  `json:"from"`
	To   Value  `json:"to"`
}

// Difference returns what differs between two images of accounts, mounted on directories.
// below are those of the images under them. What cannot be put over a running root is
// an error.
//
// The homes of those who leave stay: they are not part of a difference.
func Difference(from, to string, below []string) ([]Change, error) {
	a, err := readImage(from)
	if err != nil {
		return nil, err
	}
	b, err := readImage(to)
	if err != nil {
		return nil, err
	}
	both := maps.Clone(a)
	maps.Copy(both, b)
	var changes []Change
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(both)) {
		was, is := a[key], b[key]
		name, rowName := split(key)
		switch {
		case was.is(is) && was.Mode == is.Mode && was.UID == is.UID && was.GID == is.GID,
			is.Kind == absent && (was.Kind == home || was.Kind == directory):
		case was.Kind != absent && is.Kind != absent && (was.Kind != is.Kind || is.Kind == directory || is.Kind == home):
			problems = append(problems, fmt.Errorf("%s changes its kind, owner or mode", key))
		case rowName == "" && is.Kind == absent && anyHas(below, name):
			problems = append(problems, fmt.Errorf("%s leaves, and an image below has it, too", key))
		default:
			changes = append(changes, Change{key, was, is})
		}
	}
	return changes, errors.Join(problems...)
}

func anyHas(dirs []string, name string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return !errors.Is(err, fs.ErrNotExist) // what cannot be looked at may be there
	})
}

// readImage returns all that an image of accounts has, by key.
func readImage(dir string) (map[string]Value, error) {
	all := map[string]Value{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		key := strings.TrimPrefix(name, dir)
		switch {
		case key == "":
			return nil
		case len(all) > maxFiles:
			return fmt.Errorf("the image of accounts has more than %d files", maxFiles)
		case slices.Contains(databases, key):
			return readRows(all, name, key)
		case path.Dir(key) == "/home" && e.IsDir():
			v, err := readHome(name)
			if err != nil {
				return err
			}
			all[key] = v
			return fs.SkipDir
		}
		v, err := readValue(name)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		all[key] = v
		return nil
	})
	return all, err
}

func readRows(all map[string]Value, name, database string) error {
	data, err := readCapped(name, maxDatabase)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		rowName, _, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		key := keyOf(database, rowName)
		if _, twice := all[key]; twice {
			return fmt.Errorf("%s has two rows of %s", database, rowName)
		}
		all[key] = Value{Kind: row, Row: line}
	}
	return nil
}

// readValue reads a file or a directory; an absent one is not an error.
func readValue(name string) (Value, error) {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Value{}, nil
	}
	if err != nil {
		return Value{}, err
	}
	v := owned(info)
	switch {
	case info.IsDir():
		v.Kind = directory
		return v, nil
	case !info.Mode().IsRegular():
		return Value{}, errors.New("it is neither a file nor a directory")
	}
	v.Kind = file
	if v.Data, err = readCapped(name, maxFile); err != nil {
		return Value{}, err
	}
	v.Sum = sum(v.Data)
	return v, nil
}

func owned(info fs.FileInfo) Value {
	st := info.Sys().(*syscall.Stat_t)
	return Value{Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid)}
}

// readHome reads a home directory and what is in it.
func readHome(dir string) (Value, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return Value{}, err
	}
	v := owned(info)
	v.Kind = home
	size := 0
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel := strings.TrimPrefix(name, dir+"/")
		in, err := readValue(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if size += len(in.Data) + len(rel) + 64; size > maxHome {
			return fmt.Errorf("%s has more than %d bytes", dir, maxHome)
		}
		v.Tree = append(v.Tree, Node{rel, in.Kind == directory, in.Data, in.Mode, in.UID, in.GID})
		return nil
	})
	v.Sum = sumOf(v)
	return v, err
}

// sumOf is the digest of a home and all that is in it.
func sumOf(v Value) string {
	var b strings.Builder
	fmt.Fprintln(&b, v.Mode, v.UID, v.GID)
	for _, n := range v.Tree {
		fmt.Fprintf(&b, "%q %v %o %d %d %s\n", n.Path, n.Dir, n.Mode, n.UID, n.GID, sum(n.Data))
	}
	return sum([]byte(b.String()))
}

// readCapped reads a regular file; a link is not followed.
func readCapped(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return data, err
}
