// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/caisson-os/caisson/builder/root"
)

// A step that reads a small part of the packages' tree is made again when that
// part changed, not when any package did: its key has a sum of the part in place
// of the key of the tree. So one more package compiles no profile and compresses
// no initrd, and what would have been made is what is there.

// reads says what a step reads of the packages' tree.
type reads struct {
	paths []string                       // these, what is below them, and nothing else; but all of it
	all   func(*build) bool              // when the recipe asks for more, and
	more  func(*root.Root) (bool, error) // when what lies there leads to more
}

// keyAbove returns what the key of s has of the step below it that is named.
func (b *build) keyAbove(s step, below string) string {
	m := b.done[below]
	if sum := m.Parts[s.name]; sum != "" && (s.reads.all == nil || !s.reads.all(b)) {
		return "part " + sum
	}
	return m.Key
}

// parts sums what each later step reads of the packages' tree, by the step's name.
// A step that reads more has none.
func parts(r *root.Root) (map[string]string, error) {
	all := map[string]string{}
	for _, s := range steps {
		if s.reads == nil {
			continue
		}
		sum, err := partSum(r.Upper, s.reads.paths)
		if err == nil && sum != "" && s.reads.more != nil {
			var more bool
			if more, err = s.reads.more(r); more {
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("sum what step %s reads: %w", s.name, err)
		}
		if sum != "" {
			all[s.name] = sum
		}
	}
	return all, nil
}

// partSum hashes what a tree has at the paths and below, and the directories that
// lead there, without dates. It is "" when a link leads out of the paths: what is
// behind it is read, too.
func partSum(tree string, paths []string) (string, error) {
	sum := sha256.New()
	escapes := false
	look := func(w hash.Hash, name string, info fs.FileInfo) error {
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			if !path.IsAbs(target) {
				target = path.Join(path.Dir(name[len(tree):]), target)
			}
			escapes = escapes || !within(path.Clean(target), paths)
		}
		return undated(w, name, info)
	}
	for _, p := range paths {
		at, parts := tree, strings.Split(strings.Trim(p, "/"), "/")
		for i, part := range parts {
			at = filepath.Join(at, part)
			if !exists(at) {
				break // the trees below show through
			}
			if i == len(parts)-1 {
				below, err := treeSum(at, look)
				if err != nil {
					return "", err
				}
				fmt.Fprintf(sum, "%q %s\n", p, below)
				break
			}
			info, err := os.Lstat(at)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(sum, "%q ", at[len(tree):])
			if err := look(sum, at, info); err != nil {
				return "", err
			}
			if !info.IsDir() {
				break
			}
		}
	}
	if escapes {
		return "", nil
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// within reports whether name is one of the paths or lies below one.
func within(name string, paths []string) bool {
	for _, p := range paths {
		if name == p || strings.HasPrefix(name, p+"/") {
			return true
		}
	}
	return false
}
