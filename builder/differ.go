// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"crypto/sha256"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

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
