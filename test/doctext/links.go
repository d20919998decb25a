// SPDX-License-Identifier: Apache-2.0

package doctext

import (
	"regexp"
	"strings"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`^#+ +(.*)$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Links returns where a page of Markdown leads to, blocks of code left out.
func Links(text string) (targets []string) {
	for _, line := range prose(text) {
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			targets = append(targets, m[1])
		}
	}
	return targets
}

// Anchors returns the fragments by which the headings of a page are reached, as GitHub
// names them.
func Anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, line := range prose(text) {
		if m := heading.FindStringSubmatch(line); m != nil {
			out[anchor(m[1])] = true
		}
	}
	return out
}

// anchor is the fragment by which a heading is reached.
func anchor(heading string) string {
	name := dropped.ReplaceAllString(strings.ToLower(linked.ReplaceAllString(heading, "$1")), "")
	return strings.ReplaceAll(name, " ", "-")
}

// prose returns the lines of a page outside of blocks of code.
func prose(text string) (lines []string) {
	code := false
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case fence.MatchString(line):
			code = !code
		case !code:
			lines = append(lines, line)
		}
	}
	return lines
}
