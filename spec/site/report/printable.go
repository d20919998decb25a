// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// harmless is a text without what could steer the reader's terminal.
func harmless(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) || c == ' ' {
			return c
		}
		return '?'
	}, text)
}

// Printable is a text in one line that cannot steer a terminal: its first line,
// cut at width, and how much more there is.
func Printable(text string, width int) string {
	first, rest, more := strings.Cut(strings.TrimRight(text, "\n"), "\n")
	first = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(first, "?"))
	if utf8.RuneCountInString(first) > width {
		first = string([]rune(first)[:width-1]) + "…"
	}
	if more {
		first += fmt.Sprintf(" … (%d lines more)", 1+strings.Count(rest, "\n"))
	}
	if first == "" {
		return `""`
	}
	return first
}
