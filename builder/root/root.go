// SPDX-License-Identifier: Apache-2.0

// Package root is the file tree that one step of a build works on: the trees
// of the steps before it below, and an upper tree that takes what is new.
//
// A step reads through the stack ([Root.ReadFile]), writes plain files into the
// upper tree ([Root.WriteFile]), and runs the tree's own programs in it
// ([Root.Run]) over an overlayfs mount, see the kernel's overlayfs.rst. The mount
// exists only inside namespaces of its own, which die with the builder: whatever
// kills a build, no mount and no process stays behind.
//
// A program in the tree finds the layer and nothing else ([Enter]): the host's
// files are detached, kernel values are read-only, there is no network, and of
// root's capabilities it has those that installing files takes. It shares the
// host's kernel, and what an error in that would allow; and it may do what it
// likes to the layer. Only builder, its steps and the programs that build import
// this package.
package root

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/caisson-os/caisson/layers/image"
)

// Root is a stack of trees. The zero Upper makes it read-only.
type Root struct {
	Lowers []string // top first
	Upper  string   // takes writes; may be empty
	Work   string   // scratch directory in Upper's file system
	Epoch  int64    // SOURCE_DATE_EPOCH of the programs that run in it, seconds
	Host   string   // host name that they see; "" is localhost
}

// trees lists all trees, top first.
func (r *Root) trees() []string {
	if r.Upper == "" {
		return r.Lowers
	}
	return append([]string{r.Upper}, r.Lowers...)
}

// maxLinks is as many links as the kernel follows in one path.
const maxLinks = 40

// find returns where name (absolute, in the root) really is. Links on the way
// are followed inside the root, whatever they say; the last part is not.
func (r *Root) find(name string) (string, fs.FileInfo, error) {
	name, err := r.Literal(name)
	if err != nil {
		return "", nil, err
	}
	at, info, _, err := r.step(name)
	return at, info, err
}

// Literal returns name with the links on its way followed: the path under which
// the trees have it, or would have it.
func (r *Root) Literal(name string) (string, error) {
	start := name
	for range maxLinks {
		_, _, next, _ := r.step(name) // what is missing has a path all the same
		if next == "" {
			return path.Clean("/" + name), nil
		}
		name = next
	}
	return "", &fs.PathError{Op: "find", Path: start, Err: syscall.ELOOP}
}

// Follow returns name with all links followed, also when it is one itself.
func (r *Root) Follow(name string) (string, error) {
	below, err := r.Literal(path.Join(name, "x"))
	return path.Dir(below), err
}

// step is find up to the first link on the way: next is then the path to go on with.
func (r *Root) step(name string) (at string, info fs.FileInfo, next string, err error) {
	parts := strings.Split(strings.Trim(path.Clean("/"+name), "/"), "/")
	for _, tree := range r.trees() {
		at, hides, info := tree, false, fs.FileInfo(nil)
		for i, part := range parts {
			at = filepath.Join(at, part)
			info, err = os.Lstat(at)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
				info = nil
				break
			}
			if err != nil {
				return "", nil, "", err
			}
			if image.IsWhiteout(info) {
				return "", nil, "", notExist(name)
			}
			if i == len(parts)-1 {
				break
			}
			if info.Mode()&fs.ModeSymlink != 0 {
				target, err := os.Readlink(at)
				if err != nil {
					return "", nil, "", err
				}
				if !path.IsAbs(target) {
					target = path.Join("/", path.Join(parts[:i]...), target)
				}
				return "", nil, path.Join(append([]string{"/", target}, parts[i+1:]...)...), nil
			}
			if !info.IsDir() { // hides what lower trees have below the name
				return "", nil, "", notExist(name)
			}
			hides = hides || image.IsOpaque(at)
		}
		if info != nil {
			return at, info, "", nil
		}
		if hides {
			break
		}
	}
	return "", nil, "", notExist(name)
}

func notExist(name string) error {
	return &fs.PathError{Op: "find", Path: name, Err: fs.ErrNotExist}
}

// Lstat describes name without following it.
func (r *Root) Lstat(name string) (fs.FileInfo, error) {
	_, info, err := r.find(name)
	return info, err
}

// ReadFile returns the content of the regular file name.
func (r *Root) ReadFile(name string) ([]byte, error) {
	at, info, err := r.find(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", name)
	}
	return os.ReadFile(at)
}

// Path returns the real path of name, for reading.
func (r *Root) Path(name string) (string, error) {
	at, _, err := r.find(name)
	return at, err
}

// ReadDir lists the names in the directory name, of all trees together, sorted.
func (r *Root) ReadDir(name string) ([]string, error) {
	name, err := r.Follow(name)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	found := false
	for _, tree := range r.trees() {
		entries, err := os.ReadDir(filepath.Join(tree, name))
		if err != nil {
			continue
		}
		found = true
		for _, e := range entries {
			seen[e.Name()] = true
		}
	}
	if !found {
		return nil, notExist(name)
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(seen)), func(entry string) bool {
		_, err := r.Lstat(path.Join(name, entry))
		return err != nil // deleted above
	}), nil
}

// Empty returns a root without any program, in a directory of its own that is also its Work.
func Empty(work string) (*Root, error) {
	dir, err := os.MkdirTemp(work, "try-")
	if err != nil {
		return nil, err
	}
	r := &Root{Lowers: []string{filepath.Join(dir, "lower")}, Work: dir}
	for _, sub := range []string{"proc", "sys", "dev", "run", "tmp"} {
		if err := os.MkdirAll(filepath.Join(r.Lowers[0], sub), 0o755); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	return r, nil
}
