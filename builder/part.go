// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

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
		sum, err := image.PartSum(r.Upper, below, s.reads.paths)
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
	first, err := image.Sums(one.trees)
	if err != nil {
		return nil, err
	}
	second, err := image.Sums(two.trees)
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
