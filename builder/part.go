// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/caisson-os/caisson/builder/root"
	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/spec"
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

// seal describes a tree in the cache when its step was done. Identity is
// cheap to look at: sizes, dates and inode numbers, of which no change of a file
// leaves all as they were. A copy of the cache differs in it, so then Content
// decides: everything that an image of the tree would hold.
type seal struct {
	Identity string `json:"identity"`
	Content  string `json:"content"`
}

// sealTree looks at a tree that was just made.
func sealTree(tree string) (s seal, err error) {
	if s.Identity, err = treeSum(tree, identity); err != nil {
		return s, err
	}
	s.Content, err = treeSum(tree, content)
	return s, err
}

// holds reports whether the tree is as it was sealed.
func (s seal) holds(tree string) (bool, error) {
	now, err := treeSum(tree, identity)
	if err != nil || now == s.Identity {
		return err == nil, err
	}
	now, err = treeSum(tree, content)
	return now == s.Content, err
}

// treeSum hashes what look writes about each file of a tree, in the order of names.
func treeSum(tree string, look func(w hash.Hash, name string, info fs.FileInfo) error) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(tree, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%q ", name[len(tree):])
		return look(sum, name, info)
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// identity writes the attributes that change with every change of a file.
func identity(w hash.Hash, _ string, info fs.FileInfo) error {
	st := info.Sys().(*syscall.Stat_t)
	fmt.Fprintf(w, "%d %d %d %d %d\n", st.Ino, st.Mode, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
	return nil
}

// content writes the content of a file as an image holds it.
func content(w hash.Hash, name string, info fs.FileInfo) error {
	fmt.Fprintf(w, "%d ", info.ModTime().UnixNano())
	return undated(w, name, info)
}

// undated writes content without the date.
func undated(w hash.Hash, name string, info fs.FileInfo) error {
	st := info.Sys().(*syscall.Stat_t)
	fmt.Fprintf(w, "%o %d:%d %d ", st.Mode, st.Uid, st.Gid, st.Rdev)
	attributes, err := image.Attributes(name)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%q ", attributes)
	switch {
	case info.Mode().IsRegular():
		fmt.Fprintf(w, "%d %d\n", st.Nlink, st.Size)
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close() // only read
		_, err = io.Copy(w, f)
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(name)
		fmt.Fprintf(w, "%q\n", target)
		return err
	}
	fmt.Fprintln(w)
	return nil
}

// identityOf is the identity of one file, "" when it is not there.
func identityOf(name string) string {
	info, err := os.Lstat(name)
	if err != nil {
		return ""
	}
	sum := sha256.New()
	if identity(sum, name, info) != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// imageName is a step's image in its directory.
const imageName = "image.squashfs"

// rootOf returns the root of the hash tree of the image in dir. The tree itself is made
// by the nodes that check by it.
func rootOf(dir string, i spec.Image) (string, error) {
	salt, err := verity.Parse(digests.Hex(i.Digest))
	if err != nil {
		return "", err
	}
	f, err := os.Open(filepath.Join(dir, imageName))
	if err != nil {
		return "", err
	}
	defer f.Close() // only read
	root, err := verity.Root(f, i.Size, salt)
	if err != nil {
		return "", fmt.Errorf("hash tree of image %s: %w", i.Name, err)
	}
	return root.String(), nil
}

// completeRoot adds the root to what a release without roots left in the cache. No key
// says that it is missing: all else of the step is as this release makes it.
func (m *made) completeRoot() (err error) {
	if m.Image == nil || m.Root != "" {
		return nil
	}
	if m.Root, err = rootOf(m.dir, *m.Image); err != nil {
		return err
	}
	return m.write(m.dir)
}

// Differ lists the files of one layer, by path, that differ in content, mode or owner between
// two results, one of them made with [Options.Again]: what they have of a random number, the
// clock or the host's name is one machine's.
func Differ(one, two *Result) ([]string, error) {
	first, err := one.sums()
	if err != nil {
		return nil, err
	}
	second, err := two.sums()
	if err != nil {
		return nil, err
	}
	differ := map[string]bool{}
	for _, sums := range []map[string]string{first, second} {
		for name := range sums {
			if first[name] != second[name] {
				differ[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(differ)), nil
}

// sums returns the sum of each file in the images, but for its date; the highest image counts.
func (r *Result) sums() (map[string]string, error) {
	all := map[string]string{}
	for _, tree := range r.trees {
		err := filepath.WalkDir(tree, func(name string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			sum := sha256.New()
			err = undated(sum, name, info)
			all["/"+strings.TrimPrefix(name[len(tree):], "/")] = string(sum.Sum(nil))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
