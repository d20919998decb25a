// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"fmt"
	"slices"
	"strings"
)

// Floor is a set of folders directly below the module, and of nested ones, that may import the floors under
// it, and not each other.
type Floor struct {
	Folders []string
	Why     string // why it stands above the floor before it
}

// Upward returns the imports among all that do not lead down the floors, and the packages
// that are on no floor. The first floor is the lowest.
func Upward(floors []Floor, all []Package) []string {
	var out []string
	for _, p := range all {
		from := floorOf(floors, p.own())
		if from < 0 {
			out = append(out, p.own()+" is on no floor")
			continue
		}
		for _, dep := range p.Imports {
			other, own := strings.CutPrefix(dep, Module+"/")
			if !own || folder(other) == folder(p.own()) {
				continue
			}
			if to := floorOf(floors, other); to >= from {
				out = append(out, fmt.Sprintf("%s imports %s, which is not below it: %s: %s", p.own(), other, strings.Join(floors[to].Folders, ", "), floors[to].Why))
			}
		}
	}
	for _, f := range floors {
		out = append(out, missing(f.Why, strings.Join(f.Folders, ", "))...)
		for _, name := range f.Folders {
			if !slices.ContainsFunc(all, func(p Package) bool { return folder(p.own()) == name }) {
				out = append(out, name+" has no package")
			}
		}
	}
	return out
}

// floorOf returns the index of the floor of a package's folder, -1 where it has none.
func floorOf(floors []Floor, path string) int {
	return slices.IndexFunc(floors, func(f Floor) bool { return slices.Contains(f.Folders, folder(path)) })
}

// folder returns the nested folder that a path lies in, or its first element.
func folder(path string) string {
	if r := nestedIn(path); r != "" {
		return r
	}
	first, _, _ := strings.Cut(path, "/")
	return first
}
