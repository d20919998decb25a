// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// PartSum hashes what a tree has at the paths and below, and the directories that
// lead there, without dates. Those of them that are as in the one tree below, if any,
// change nothing. It is "" when a link leads out of the paths: what is behind it is
// read, too.
func PartSum(tree, below string, paths []string) (string, error) {
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
		if _, err := os.Lstat(at); errors.Is(err, fs.ErrNotExist) {
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

// Seal describes a tree as it was when it was made. Identity is
// cheap to look at: sizes, dates and inode numbers, of which no change of a file
// leaves all as they were. A copy of the cache differs in it, so then Content
// decides: everything that an image of the tree would hold.
type Seal struct {
	Identity string `json:"identity"`
	Content  string `json:"content"`
}

// SealTree looks at a tree that was just made.
func SealTree(tree string) (s Seal, err error) {
	if s.Identity, err = treeSum(tree, identity); err != nil {
		return s, err
	}
	s.Content, err = treeSum(tree, content)
	return s, err
}

// Holds reports whether the tree is as it was sealed.
func (s Seal) Holds(tree string) (bool, error) {
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
	attributes, err := Attributes(name)
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

// IdentityOf is the identity of one file, "" when it is not there.
func IdentityOf(name string) string {
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

// Sums returns the sum of each file in the trees, but for its date; the last tree counts.
func Sums(trees []string) (map[string]string, error) {
	all := map[string]string{}
	for _, tree := range trees {
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
