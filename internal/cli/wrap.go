// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"unicode/utf8"
)

// HelpWidth is that of a line of help.
const HelpWidth = 100

// Wrap breaks each paragraph of a help text into lines of at most [HelpWidth] characters.
// Lines that begin with a blank stay as they are.
func Wrap(text string) string {
	var out []string
	open := false // the last line may go on
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == ' ' {
			out, open = append(out, line), false
			continue
		}
		for _, word := range strings.Fields(line) {
			if last := len(out) - 1; open && utf8.RuneCountInString(out[last])+1+utf8.RuneCountInString(word) <= HelpWidth {
				out[last] += " " + word
			} else {
				out, open = append(out, word), true
			}
		}
	}
	return strings.Join(out, "\n")
}
