// SPDX-License-Identifier: Apache-2.0

// The layer's own chown(1) and chmod(1) set owner and mode of paths, in the layer's own root, so that
// names mean what they mean there and the kernel copies files up with all their
// attributes. Owners come before modes, because chown(2) drops set-id bits; a
// path whose mode is not given keeps the one it had. Links are refused: the mode
// of a link means nothing and its target has a name of its own.

package accounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// permScript takes three words a path: owner, mode, path.
const permScript = `set -e
while [ $# -gt 0 ]; do
	[ "$1" = : ] || chown --no-dereference -- "$1" "$3"
	chmod -- "$2" "$3"
	shift 3
done`

// BakePerm applies p to the paths in r, in the author's order.
func BakePerm(ctx context.Context, r *root.Root, p spec.Perm) error {
	b := permBaking{r: r, caps: map[string][]byte{}, modes: map[string]uint32{}}
	var problems []error
	for _, entry := range p.Paths {
		found, err := matching(r, entry)
		if errors.Is(err, fs.ErrNotExist) && p.IgnoreMissing {
			continue
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("perm %s: %w", entry.Path, err))
			continue
		}
		if err := b.add(entry, found); err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	if len(b.words) == 0 {
		return nil
	}
	err := r.Run(ctx, root.Command{Args: append([]string{"/bin/sh", "-c", permScript, "perm"}, b.words...)})
	if exit, ok := errors.AsType[*root.ExitError](err); ok {
		return fmt.Errorf("perm: %s", exit.Output)
	}
	if err != nil {
		return err
	}
	for name, c := range b.caps { // chown(2) took them
		if err := unix.Lsetxattr(filepath.Join(r.Upper, name), "security.capability", c, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("perm %s: give back its capabilities: %w", name, err)
		}
	}
	return nil
}

// permBaking holds the work of the script.
type permBaking struct {
	r     *root.Root
	words []string
	caps  map[string][]byte // capabilities by path
	modes map[string]uint32 // that earlier entries gave
}

// add adds an entry for the paths that it means.
func (b *permBaking) add(entry spec.PermPath, paths []string) error {
	mode, err := rules.ParseMode(entry.Mode)
	if err != nil {
		return fmt.Errorf("perm %s: %w", entry.Path, err)
	}
	for _, name := range paths {
		at, err := b.r.Path(name)
		if err != nil {
			return err
		}
		info, err := b.r.Lstat(name)
		if err != nil {
			return err
		}
		if c := permCapability(at); c != nil {
			literal, err := b.r.Literal(name)
			if err != nil {
				return err
			}
			b.caps[literal] = c
		}
		now, set := b.modes[name]
		if !set {
			now = octal(info.Mode())
		}
		if entry.Mode != "" && entry.Owner+entry.Group != "" && info.Mode().IsRegular() {
			now = afterChown(now)
		}
		b.modes[name] = mode.Apply(now, info.IsDir())
		// With five digits chmod(1) clears a directory's set-id bits too.
		b.words = append(b.words, cmp.Or(entry.Owner+permGroup(entry.Group), ":"), fmt.Sprintf("%05o", b.modes[name]), name)
	}
	return nil
}

func permGroup(g string) string {
	if g == "" {
		return ""
	}
	return ":" + g
}

// CheckPerm refuses entries that mean nothing in any tree.
func CheckPerm(p *spec.Perm) error {
	if p == nil {
		return nil
	}
	var problems []error
	for _, e := range p.Paths {
		if err := rules.PermPath(e); err != nil {
			problems = append(problems, fmt.Errorf("perm %s: %w", e.Path, err))
		}
	}
	return errors.Join(problems...)
}

// matching returns the paths that an entry means, sorted.
func matching(r *root.Root, e spec.PermPath) ([]string, error) {
	if err := rules.PermPath(e); err != nil {
		return nil, err
	}
	found, err := expand(r, e.Path)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the layer has no such path: %w", fs.ErrNotExist)
	}
	for _, name := range found {
		info, err := r.Lstat(name)
		if err != nil {
			return nil, err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return nil, fmt.Errorf("%s is a symbolic link; name what it points to", name)
		}
	}
	return found, nil
}

// expand matches a pattern part by part, as a shell does.
func expand(r *root.Root, pattern string) ([]string, error) {
	found := []string{"/"}
	for _, part := range strings.Split(strings.Trim(pattern, "/"), "/") {
		var next []string
		for _, dir := range found {
			if !strings.ContainsAny(part, `*?[\`) {
				if _, err := r.Lstat(path.Join(dir, part)); err == nil {
					next = append(next, path.Join(dir, part))
				}
				continue
			}
			names, err := r.ReadDir(dir)
			if err != nil {
				continue
			}
			for _, name := range names {
				ok, err := path.Match(part, name)
				if err != nil {
					return nil, fmt.Errorf("pattern %q: %w", part, err)
				}
				if ok && (part[0] == '.' || name[0] != '.') {
					next = append(next, path.Join(dir, name))
				}
			}
		}
		found = next
	}
	return found, nil
}

// afterChown returns what chown(2) leaves of a file's mode: set-id bits that the
// entry does not name itself are for the owner that the file had.
func afterChown(mode uint32) uint32 {
	mode &^= unix.S_ISUID
	if mode&unix.S_IXGRP != 0 {
		mode &^= unix.S_ISGID
	}
	return mode
}

// octal is a mode as chmod(1) takes it.
func octal(m fs.FileMode) uint32 {
	o := uint32(m.Perm())
	for bit, to := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			o |= to
		}
	}
	return o
}

// permCapability reads a file's capabilities, nil for none.
func permCapability(name string) []byte {
	buf := make([]byte, 64)
	n, err := unix.Lgetxattr(name, "security.capability", buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}
