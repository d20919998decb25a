// SPDX-License-Identifier: Apache-2.0

package report

import "strings"

// DidYouMean returns a hint that names the known word nearest to got, or all of
// them when none is near and there are few.
func DidYouMean(got string, known []string) string {
	best, least := "", 3
	fold := strings.NewReplacer("-", "", "_", "", ".", "")
	for _, k := range known {
		d := distance(strings.ToLower(got), strings.ToLower(k), least)
		if fold.Replace(strings.ToLower(got)) == fold.Replace(strings.ToLower(k)) {
			d = 0
		}
		if d < least && d < max(len(k), 2) {
			best, least = k, d
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	if len(known) > 0 && len(known) <= 12 {
		return "known here: " + strings.Join(known, ", ")
	}
	return ""
}

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
