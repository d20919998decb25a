// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"strings"
	"testing"
)

func TestWithoutSequences(t *testing.T) {
	for in, want := range map[string]string{
		"":                                   "",
		"a\r\nb\tä漢":                         "a\r\nb\tä漢",
		"[ \x1b[0;32m  OK  \x1b[0m ] up":     "[   OK   ] up",
		"\x1b[!pa":                           "a", // DECSTR
		"\x1b(Ba":                            "a",
		"\x1b%Ga":                            "a",
		"\x1b#8a":                            "a",
		"\x1b[2 qa":                          "a",
		"\x1b[>4ma\x1b[?25lb\x1b[?1049h":     "ab",
		"\x1b[6na\x1b[32766;32766Hb\x1b[=c":  "ab",
		"\x1bca\x1b7b\x1b=c\x1bMd":           "abcd",
		"\x1b]0;title ä\aa":                  "a",
		"\x1b]8;;http://x\x1b\\a\x1b]104\a":  "a",
		"\x1bP+q544e\x1b\\a":                 "a", // DCS
		"\x1bP1$r0m\x1b\\a\x1b_x\x1b\\b":     "ab",
		"\x1b^x\x1b\\a\x1bXx\x1b\\b":         "ab",
		"\x1bPx\x1b[1ma":                     "a", // another one ends a text
		"\x1b[1\x18a\x1bPx\x1ab":             "ab",
		"\x1b[1\r;2ma":                       "a",
		"\x1b\x1b[1ma":                       "a",
		"\x1b[\nb\x1bPx\nc":                  "\nb\nc", // nothing hides the next line
		"\x1b":                               "",
		"a\x1b[1":                            "a",
		"\x1b[1ä":                            "ä",
		"\x1bPx" + strings.Repeat("y", 5000): strings.Repeat("y", 5001-longestSequence+1),
	} {
		if got := WithoutSequences(in); got != want {
			t.Errorf("WithoutSequences(%q) = %q, want %q", in, got, want)
		}
	}
}
