// SPDX-License-Identifier: Apache-2.0

package ownfiles

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is how many links a path may lead through, as in path_resolution(7).
const maxLinks = 40

// direct returns the path that name leads to, without links. A link on the way must
// belong to this user, root, or who called sudo, and lie where no other user can
// replace it; so must what a link leads to.
func direct(name string) (string, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	at, rest, links := "/", split(abs), 0
	for len(rest) > 0 {
		next := filepath.Join(at, rest[0])
		info, err := os.Lstat(next)
		if err != nil {
			return "", &fs.PathError{Op: "open", Path: name, Err: errors.Unwrap(err)}
		}
		link := info.Mode()&os.ModeSymlink != 0
		if (link || links > 0) && !held(at, info) {
			return "", &SecretError{name, next + " is a link, or behind one, that others can change", "name the file itself"}
		}
		rest = rest[1:]
		if !link {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", &SecretError{name, "it leads through too many links", "name the file itself"}
		}
		to, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(split(to), rest...)
	}
	return at, nil
}

// split returns the names in a path. It keeps "..": what that means is known only
// when the links before it are followed.
func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == filepath.Separator })
}

// held reports whether only this user and root can put another file in the place of
// one in the directory dir.
func held(dir string, file os.FileInfo) bool {
	d, err := os.Lstat(dir)
	if err != nil || !mine(owner(d)) || !mine(owner(file)) {
		return false
	}
	return d.Mode().Perm()&0o022 == 0 || d.Mode()&os.ModeSticky != 0
}
