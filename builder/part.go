// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/root"
)

// A step that reads a small part of the packages' tree is made again when that
// part changed, not when any package did: its key has a sum of the part in place
// of the key of the tree. So one more package compiles no profile and compresses
// no initrd, and the kept result is the one that would have been made.

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
		below := ""
		if len(r.Lowers) == 1 {
			below = r.Lowers[0]
		}
		sum, err := partSum(r.Upper, below, s.reads.paths)
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
// lead there, without dates. Those of them that are as in the one tree below, if any,
// change nothing. It is "" when a link leads out of the paths: what is behind it is
// read, too.
func partSum(tree, below string, paths []string) (string, error) {
	s := &summing{tree: tree, paths: paths, sum: sha256.New()}
	for _, p := range paths {
		if err := s.add(p, below); err != nil {
			return "", err
		}
	}
	if s.escapes {
		return "", nil
	}
	return hex.EncodeToString(s.sum.Sum(nil)), nil
}

// summing is the sum of a part of a tree in the making.
type summing struct {
	tree    string
	paths   []string
	sum     hash.Hash
	escapes bool // a link leads out of the paths
}

// look hashes one file without its date, and notes where a link leads.
func (s *summing) look(w hash.Hash, name string, info fs.FileInfo) error {
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(name)
		if err != nil {
			return err
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(name[len(s.tree):]), target)
		}
		s.escapes = s.escapes || !within(path.Clean(target), s.paths)
	}
	return undated(w, name, info)
}

// add hashes what is at a path and below, and the directories that lead there.
func (s *summing) add(p, under string) error {
	at, parts := s.tree, strings.Split(strings.Trim(p, "/"), "/")
	for i, part := range parts {
		at = filepath.Join(at, part)
		if !exists(at) {
			return nil // the trees below show through
		}
		if i == len(parts)-1 {
			all, err := treeSum(at, s.look)
			fmt.Fprintf(s.sum, "%q %s\n", p, all)
			return err
		}
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		own := sha256.New()
		if err := s.look(own, at, info); err != nil {
			return err
		}
		same := false
		if info.IsDir() {
			if same, err = isDirWith(own.Sum(nil), under, part); err != nil {
				return err
			}
		}
		if under = filepath.Join(under, part); !same {
			fmt.Fprintf(s.sum, "%q %x\n", at[len(s.tree):], own.Sum(nil))
			under = "" // it may hide what is below
		}
		if !info.IsDir() {
			return nil
		}
	}
	return nil
}

// isDirWith reports whether there is a directory of that name in a tree, with that sum,
// which leaves out what is in it.
func isDirWith(sum []byte, tree, name string) (bool, error) {
	if tree == "" {
		return false, nil
	}
	at := filepath.Join(tree, name)
	info, err := os.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !info.IsDir() {
		return false, err
	}
	its := sha256.New()
	err = undated(its, at, info)
	return bytes.Equal(its.Sum(nil), sum), err
}

// within reports whether name is one of the paths or lies below one.
func within(name string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return name == p || strings.HasPrefix(name, p+"/") })
}
