// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"syscall"
)

// Change is one path that two images have not in common.
type Change struct {
	Path string `json:"path"`
	What string `json:"what"` // added, removed, content, mode, type
}

// Mark is the change's one-letter form.
func (c Change) Mark() string {
	switch c.What {
	case "added":
		return "+"
	case "removed":
		return "-"
	}
	return " "
}

// Compare lists the paths that differ between two squashfs files. A file that
// does not exist counts as an empty image. Dates do not count.
func Compare(ctx context.Context, a, b string) ([]Change, error) {
	old, err := listing(ctx, a)
	if err != nil {
		return nil, err
	}
	new, err := listing(ctx, b)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for path, n := range new {
		o, was := old[path]
		switch {
		case !was:
			changes = append(changes, Change{path, "added"})
		case o.mode.Type() != n.mode.Type():
			changes = append(changes, Change{path, "type"})
		case o.content != n.content:
			changes = append(changes, Change{path, "content"})
		case o != n:
			changes = append(changes, Change{path, "mode"})
		}
	}
	for path := range old {
		if _, is := new[path]; !is {
			changes = append(changes, Change{path, "removed"})
		}
	}
	sort.Slice(changes, func(i, j int) bool { return changes[i].Path < changes[j].Path })
	return changes, nil
}

// listed is all that counts of one path.
type listed struct {
	mode     fs.FileMode
	uid, gid uint32
	rdev     uint64
	content  [32]byte // of a file, or of a link's target
}

// Unpack writes what an image has into a directory that is not there yet.
func Unpack(ctx context.Context, file, dir string) error {
	if said, err := exec.CommandContext(ctx, "unsquashfs", "-no-progress", "-quiet", "-dest", dir, file).CombinedOutput(); err != nil {
		return fmt.Errorf("unsquashfs: %s: %w", lastLine(string(said)), err)
	}
	return nil
}

func listing(ctx context.Context, file string) (map[string]listed, error) {
	all := map[string]listed{}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	dir := file + ".d"
	defer os.RemoveAll(dir) // in the caller's temporary directory
	if err := Unpack(ctx, file, dir); err != nil {
		return nil, err
	}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		l := listed{mode: info.Mode(), uid: st.Uid, gid: st.Gid, rdev: st.Rdev}
		switch {
		case info.Mode().IsRegular():
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			defer f.Close() // only read
			sum := sha256.New()
			if _, err := io.Copy(sum, f); err != nil {
				return err
			}
			sum.Sum(l.content[:0])
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			l.content = sha256.Sum256([]byte(target))
		}
		rel, err := filepath.Rel(dir, name)
		all["/"+rel] = l
		return err
	})
	return all, err
}
