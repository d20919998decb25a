// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// ordered returns a list so that each mount comes after those that it needs: what its target
// lies in, and what its source does. In a circle of them the order of targets counts.
func ordered[T any](list []T, of func(T) spec.Mount) []T {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b T) int { return strings.Compare(of(a).Target+"/", of(b).Target+"/") })
	out := make([]T, 0, len(list))
	for len(list) > 0 {
		next := slices.IndexFunc(list, func(a T) bool {
			return !slices.ContainsFunc(list, func(b T) bool { return of(a).Target != of(b).Target && needs(of(a), of(b).Target) })
		})
		next = max(next, 0)
		out, list = append(out, list[next]), slices.Delete(list, next, next+1)
	}
	return out
}

// needs reports whether a mount can be made only after that on target.
func needs(w spec.Mount, target string) bool {
	paths := []string{w.Target, w.Device}
	return slices.ContainsFunc(append(paths, stacked(w.Options)...), func(path string) bool { return filepath.IsAbs(path) && within(path, target) })
}

// stacked are the directories of an overlay.
func stacked(options []string) (dirs []string) {
	for _, word := range options {
		if key, list, _ := strings.Cut(word, "="); slices.Contains([]string{"lowerdir", "upperdir", "workdir"}, key) {
			dirs = append(dirs, strings.FieldsFunc(list, func(r rune) bool { return r == ':' })...)
		}
	}
	return dirs
}
