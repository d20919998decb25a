// SPDX-License-Identifier: Apache-2.0

// Package report tells people what is wrong with what they wrote: all of it at
// once, each with its place, a rule that tools can rely on, and a hint.
//
// It is not about errors of a program: those are Go errors, and [Report.Err]
// makes one of a report. What it prints cannot steer a terminal, whatever stood
// in the input. The packages below spec/site fill reports; the command line
// prints them. It imports nothing of the project.
package report

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caisson-os/caisson/internal/plain"
)

// Severities of a problem.
const (
	Error   = "error"   // the site cannot be used
	Warning = "warning" // it can, but this is probably not what was meant
	Note    = "note"    // it can, and this is worth knowing
)

// Problem is one thing that is wrong with the input.
type Problem struct {
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Path     string `json:"path,omitempty"` // of the field, as in conf.exec.hello.timeout
	Severity string `json:"severity"`
	Rule     string `json:"rule"` // a word that stays the same, for tools
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`

	At Pos `json:"-"`
}

// Report collects every problem of one input.
type Report struct {
	Problems []Problem
	seen     map[Problem]bool
}

// ErrInvalid is wrapped by [Report.Err].
var ErrInvalid = errors.New("invalid input")

// Err returns an error when the report has one.
func (r *Report) Err() error {
	n := r.Count(Error)
	if n == 0 {
		return nil
	}
	first, more := r.FirstError(), ""
	if n > 1 {
		more = fmt.Sprintf(" (and %d more)", n-1)
	}
	return Invalidf(first.Hint, "%s%s", first, more)
}

// FirstError returns the first error of the report, the zero value of none.
func (r *Report) FirstError() Problem {
	return plain.First(r.Problems, func(p Problem) bool { return p.Severity == Error })
}

// Invalidf is an error of the kind of [Report.Err] about what is asked of a site.
func Invalidf(hint, format string, args ...any) error {
	return &invalid{text: fmt.Sprintf(format, args...), hint: hint}
}

// invalid is the short form of a report.
type invalid struct{ text, hint string }

func (e *invalid) Error() string { return e.text }
func (e *invalid) Hint() string  { return e.hint }
func (e *invalid) ExitCode() int { return 2 }
func (e *invalid) Unwrap() error { return ErrInvalid }

// Count returns the number of problems of a severity.
func (r *Report) Count(severity string) int {
	return len(plain.Pick(r.Problems, func(p Problem) (Problem, bool) { return p, p.Severity == severity }))
}

// Strict turns warnings into errors.
func (r *Report) Strict() {
	for i := range r.Problems {
		if r.Problems[i].Severity == Warning {
			r.Problems[i].Severity = Error
		}
	}
}

// MaxProblems bounds what a hopeless input can make us say.
const MaxProblems = 1000

// Add notes a problem once: what is wrong in the base is wrong for each target.
func (r *Report) Add(p Problem) {
	if p.At.Src != nil {
		p.File, p.Line, p.Column = p.At.Src.Name, int(p.At.Line), int(p.At.Col)
	}
	p.File, p.Path, p.Message, p.Hint = plain.Line(p.File), plain.Line(p.Path), plain.Line(p.Message), plain.Line(p.Hint)
	if r.seen == nil {
		r.seen = map[Problem]bool{}
	}
	key := p
	key.Path = ""
	if r.seen[key] {
		return
	}
	if len(r.Problems) >= MaxProblems { // an error is not crowded out by what is not an error
		i := slices.IndexFunc(r.Problems, func(p Problem) bool { return p.Severity != Error })
		if p.Severity != Error || i < 0 {
			return
		}
		r.Problems = slices.Delete(r.Problems, i, i+1)
	}
	r.seen[key] = true
	r.Problems = append(r.Problems, p)
}

// Sort puts problems in order of their places.
func (r *Report) Sort() {
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// String is the problem in one line.
func (p Problem) String() string {
	place, path := p.where()
	return place + path + p.Message
}

// where returns the place of the problem and its field, each as a line of them begins.
func (p Problem) where() (place, path string) {
	switch {
	case p.Line > 0 && p.File != "":
		place = fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	case p.File != "":
		place = p.File + ": "
	}
	if p.Path != "" {
		path = p.Path + ": "
	}
	return place, path
}

// Write prints the report as a compiler would: position, severity, what, the
// rule, the line underlined, the hint.
func (r *Report) Write(w io.Writer) {
	for _, p := range r.Problems {
		place, path := p.where()
		fmt.Fprintf(w, "%s%s: %s%s [%s]\n", place, p.Severity, path, p.Message, p.Rule)
		if line, marks := p.At.excerpt(); line != "" {
			fmt.Fprintf(w, "%6d | %s\n       | %s\n", p.Line, line, marks)
		}
		if p.Hint != "" {
			fmt.Fprintf(w, "  hint: %s\n", p.Hint)
		}
	}
}

// DropNotes leaves errors and warnings.
func (r *Report) DropNotes() {
	r.Problems = slices.DeleteFunc(r.Problems, func(p Problem) bool { return p.Severity == Note })
}

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
	return cmp.Or(first, `""`)
}

// fewWords is how many known words a hint lists.
const fewWords = 24

// DidYouMean returns a hint that names the known word nearest to got, or all of
// them when none is near and there are few.
func DidYouMean(got string, known []string) string {
	if like := cmp.Or(plain.Nearest(got, slices.Values(known)), partOf(got, known)); like != "" {
		return "did you mean " + like + "?"
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

// Source is one file that was read.
type Source struct {
	Name    string
	Data    []byte // kept for excerpts; nil for large generated files
	Lenient bool   // Divingbell's own file: what Divingbell ignores is a warning
}

// Pos is a place in a source. The zero pos is nowhere: a built-in default.
type Pos struct {
	Src       *Source
	Line, Col int32
}

func (p Pos) String() string {
	if p.Src == nil {
		return "default"
	}
	return fmt.Sprintf("%s:%d:%d", p.Src.Name, p.Line, p.Col)
}

// excerpt returns the source line and the marks below it.
func (p Pos) excerpt() (line, marks string) {
	if p.Src == nil || p.Line < 1 {
		return "", ""
	}
	data := p.Src.Data
	for range p.Line - 1 {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			return "", ""
		}
		data = data[i+1:]
	}
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		data = data[:i]
	}
	line = strings.ReplaceAll(strings.TrimRight(string(data[:min(len(data), 400)]), "\r"), "\t", " ")
	text := []rune(plain.Line(line)) // one for one, so that columns stay
	start := min(max(int(p.Col)-1, 0), len(text))
	n := 0
	for start+n < len(text) && !strings.ContainsRune(" ,]}#", text[start+n]) {
		if text[start+n] == ':' && (start+n+1 == len(text) || text[start+n+1] == ' ') {
			break // it ends a key
		}
		n++
	}
	const width = 110
	if start > width {
		return "", "" // what would be underlined is out of sight
	}
	shown := text[:min(len(text), width)]
	n = min(max(n, 1), width-start+1)
	return string(shown), strings.Repeat(" ", utf8.RuneCountInString(string(text[:start]))) + strings.Repeat("^", n)
}
