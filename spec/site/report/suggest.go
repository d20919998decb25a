// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/nearest"
)

// fewWords is how many known words a hint lists.
const fewWords = 24

// DidYouMean returns a hint that names the known word nearest to got, or all of
// them when none is near and there are few.
func DidYouMean(got string, known []string) string {
	if best := nearest.Word(got, slices.Values(known)); best != "" {
		return "did you mean " + best + "?"
	}
	if part := partOf(got, known); part != "" {
		return "did you mean " + part + "?"
	}
	if len(known) > 0 && len(known) <= fewWords {
		return "known here: " + strings.Join(known, ", ")
	}
	return ""
}

// partOf returns the one known word that got is the end of, as sshkeys is of user_sshkeys.
func partOf(got string, known []string) (whole string) {
	for _, k := range known {
		if len(got) > 2 && strings.HasSuffix(k, "_"+got) {
			if whole != "" {
				return ""
			}
			whole = k
		}
	}
	return whole
}
