// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"iter"
	"strings"
)

// Nearest returns the known word that is at most two edits from got, the nearest one,
// or "". Hyphens, underscores, dots and case do not count.
func Nearest(got string, known iter.Seq[string]) string {
	best, least := "", 3
	folded := fold(got)
	for k := range known {
		d := distance(strings.ToLower(got), strings.ToLower(k), least)
		if folded == fold(k) {
			d = 0
		}
		if d < least && d < max(min(len(got), len(k)), 2) {
			best, least = k, d
		}
	}
	return best
}

var separators = strings.NewReplacer("-", "", "_", "", ".", "")

func fold(word string) string { return separators.Replace(strings.ToLower(word)) }

// distance is the number of edits between a and b, or limit when there are more.
func distance(a, b string, limit int) int {
	if len(a) > 64 || len(b) > 64 || len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := prev
			if a[i] != b[j] {
				cost++
			}
			prev = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}
