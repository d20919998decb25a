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
	if len(known) > 0 && len(known) <= fewWords {
		return "known here: " + strings.Join(known, ", ")
	}
	return ""
}
