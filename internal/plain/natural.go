// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// Natural compares two names as people count: node2 is before node10, and r9-3 before
// r10-1. Digits are compared as numbers of any length; where two names are then alike, as
// n1 and n01 are, their bytes decide.
func Natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		m, n := digits(x), digits(y)
		if m > 0 && n > 0 {
			p, q := strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")
			if c := cmp.Or(cmp.Compare(len(p), len(q)), strings.Compare(p, q)); c != 0 {
				return c
			}
			x, y = x[m:], y[n:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// digits is how many digits a text begins with.
func digits(text string) int {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return i
		}
	}
	return len(text)
}

// Names returns names in the order of [Natural].
func Names(names iter.Seq[string]) []string { return slices.SortedFunc(names, Natural) }
