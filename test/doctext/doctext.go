// SPDX-License-Identifier: Apache-2.0

// Package doctext reads the pages of documentation for tests: the commands that they tell
// people to type, where their links lead, and how their prose is wrapped. Only tests import
// it.
package doctext

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Command is one call of a program on a page.
type Command struct {
	Place  string   // file:line
	Words  []string // behind the program's name; what was quoted is one word
	Inline bool     // within a sentence, which may leave out what it is not about
}

var (
	fence  = regexp.MustCompile("^\\s*```")
	inline = regexp.MustCompile("`([^`\n]+)`")
	before = regexp.MustCompile(`^(?:\$ |# |sudo |ssh \S+ |export \S+|[A-Z_]+=\S* |podman run .* |ExecStart=|- )*`)
	quoted = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	ends   = regexp.MustCompile(` #|[|;&>)]|<\(| <`)
)

// Commands returns the calls of a program on pages of Markdown, in blocks of code and in
// sentences.
func Commands(program string, pages ...string) ([]Command, error) {
	var out []Command
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		code, lines := false, strings.Split(string(text), "\n")
		for i := 0; i < len(lines); i++ {
			at, line := i+1, lines[i]
			if fence.MatchString(line) {
				code = !code
				continue
			}
			if !code {
				for _, m := range inline.FindAllStringSubmatch(line, -1) {
					out = add(out, program, page, at, m[1], true)
				}
				continue
			}
			for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
				i++
				line = strings.TrimSuffix(line, `\`) + " " + strings.TrimSpace(lines[i])
			}
			for part := range strings.SplitSeq(line, "&&") {
				out = add(out, program, page, at, strings.TrimSpace(part), false)
			}
		}
	}
	return out, nil
}

func add(out []Command, program, page string, line int, text string, inline bool) []Command {
	text = quoted.ReplaceAllString(text, "quoted")
	text = before.ReplaceAllString(text, "")
	if cut := ends.FindStringIndex(text); cut != nil {
		text = text[:cut[0]]
	}
	words := strings.Fields(text)
	if len(words) < 2 || filepath.Base(words[0]) != program {
		return out
	}
	return append(out, Command{fmt.Sprintf("%s:%d", filepath.Base(page), line), words[1:], inline})
}

// Pages returns the pages of a project that people wrote: README.md and docs/*.md of the
// root, and the notes of its examples.
func Pages(root string) ([]string, error) {
	var out []string
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*/*.md", "examples/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		out = append(out, names...)
	}
	return out, nil
}
