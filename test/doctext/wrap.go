// SPDX-License-Identifier: Apache-2.0

package doctext

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

var (
	item   = regexp.MustCompile(`^(\s*)([-*]|\d+\.) +`)
	asItIs = regexp.MustCompile(`^\s*(\||#|<|!\[|$)`)
	// A word keeps code and pictures in one line: what looks for commands reads lines.
	word = regexp.MustCompile("(?:`[^`]*`|[^\\s`])+")
	// begins would be read as something else at the start of a line.
	begins = regexp.MustCompile(`^([-+*#>|=]+|\d+[.)]|<.*)$`)
)

// Width is that of a line of prose on a page, so that a diff shows what changed.
const Width = 100

// Wrap breaks the prose of a page of Markdown into lines of at most width characters.
// Code, tables, headings and comments stay as they are.
func Wrap(text string, width int) string {
	var out, paragraph []string
	indent, code := "", false
	flush := func() {
		if len(paragraph) > 0 {
			out = append(out, fill(strings.Join(paragraph, " "), indent, width)...)
		}
		paragraph = nil
	}
	for _, line := range strings.Split(text, "\n") {
		if fence.MatchString(line) {
			flush()
			code = !code
			out = append(out, line)
			continue
		}
		if code || asItIs.MatchString(line) {
			flush()
			out = append(out, line)
			continue
		}
		if m := item.FindString(line); m != "" {
			flush()
			indent = strings.Repeat(" ", len(m))
			paragraph = []string{line}
			continue
		}
		if len(paragraph) == 0 {
			indent = line[:len(line)-len(strings.TrimLeft(line, " "))]
		}
		paragraph = append(paragraph, line)
	}
	flush()
	return strings.Join(out, "\n")
}

func fill(text, indent string, width int) (lines []string) {
	mark := item.FindString(text)
	if mark == "" {
		mark = indent
	}
	line := mark
	for i, w := range word.FindAllString(strings.TrimPrefix(text, mark), -1) {
		full := i > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(w) > width
		switch {
		case i == 0:
			line += w
		case full && !begins.MatchString(w):
			lines, line = append(lines, line), indent+w
		default:
			line += " " + w
		}
	}
	return append(lines, line)
}
