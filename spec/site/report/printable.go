// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/caisson-os/caisson/internal/plain"
)

// Printable is a text in one line that cannot steer a terminal: its first line,
// cut at width, and how much more there is.
func Printable(text string, width int) string {
	first, rest, more := strings.Cut(strings.TrimRight(text, "\n"), "\n")
	first = plain.Line(first)
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
