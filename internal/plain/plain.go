// SPDX-License-Identifier: Apache-2.0

// Package plain writes text for people. It keeps text from outside from steering the
// reader's terminal: what a registry, a layer, a user's file name or the author of a
// site says may hold escapes, carriage returns, marks that turn the direction of
// writing, and line breaks behind which a line of ours is forged.
//
// It is the only place with this rule. Code that prints for people goes through it,
// internal/cli for both programs; JSON is for programs and is not filtered. [Nearest] guesses
// which known word an author meant, for hints: what it finds is offered, never taken; [ParseSpan]
// reads spans of time as people write them.
// It imports the standard library only; everything may import it.
package plain

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Line returns text as one line: a line break becomes "; ", and everything else
// that does not print, invalid UTF-8 included, a question mark.
func Line(text string) string {
	if printable(text) {
		return text
	}
	text = strings.ReplaceAll(strings.Trim(text, "\r\n"), "\n", "; ")
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) && c != unicode.ReplacementChar {
			return c
		}
		return '?'
	}, text)
}

// Lines returns text of several lines, such as joined errors, each as by [Line].
// Those after the first are indented, so that none of them begins like one of ours.
func Lines(text string) string {
	if printable(text) {
		return text
	}
	return strings.Join(Each(strings.Split(strings.Trim(text, "\r\n"), "\n"), Line), "\n  ")
}

// Sprintf is fmt.Sprintf for people to read. The format is trusted, with its line
// breaks and tabs; arguments are not: text goes through [Line], errors go through
// [Lines], and what any other value prints has its escapes taken out.
func Sprintf(format string, args ...any) string {
	if false {
		_ = fmt.Sprintf(format, args...) // has go vet check the callers' formats
	}
	clean := Each(args, argument)
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) || c == '\n' || c == '\t' {
			return c
		}
		return '?'
	}, fmt.Sprintf(format, clean...))
}

func argument(arg any) any {
	switch v := arg.(type) {
	case nil:
		return arg
	case error:
		return Lines(v.Error())
	case []string:
		return Each(v, Line)
	case fmt.Stringer:
		if reflect.TypeOf(arg).Kind() == reflect.String {
			return Line(v.String())
		}
	}
	if v := reflect.ValueOf(arg); v.Kind() == reflect.String {
		return Line(v.String())
	}
	return arg
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar })
}

// Cut returns the beginning of a text that is longer than so many bytes, with a sign that says so.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// With returns a text with more behind what divides them, and as it is where there is no more.
func With(text, divider, more string) string {
	if more == "" {
		return text
	}
	return text + divider + more
}

// Count writes how many there are of a thing whose plural ends in s: "1 node", "2 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Some writes names, the first of very many and how many more there are.
func Some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, " ")
	}
	return fmt.Sprintf("%s … and %d more", strings.Join(names[:most], " "), len(names)-most)
}

// Bytes writes a size: "12.3 kB", "86.5 MB", "960.2 GB".
func Bytes(n int64) string {
	switch {
	case n < 1e6:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1e9:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}

// Duration writes a time without the units at its end that are zero: 2h, not 2h0m0s.
func Duration(d time.Duration) string {
	text := d.String()
	for _, zero := range []struct{ end, keep string }{{"m0s", "m"}, {"h0m", "h"}} {
		if before, ok := strings.CutSuffix(text, zero.end); ok {
			text = before + zero.keep
		}
	}
	return text
}

// LongestSpan is the longest that [ParseSpan] takes.
const LongestSpan = 10 * 366 * 24 * time.Hour

// ParseSpan reads 7d and what time.ParseDuration reads.
func ParseSpan(text string) (time.Duration, error) {
	spelled, unit := text, time.Duration(1)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		spelled, unit = days+"h", 24
	}
	d, err := time.ParseDuration(spelled)
	if err == nil && d.Abs() > LongestSpan { // of days it would overflow
		err = fmt.Errorf("%q is more than ten years", text)
	}
	return d * unit, err
}

// Time is when something was, for people and programs.
func Time(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}

// Sequences finds the control sequences in what a terminal is sent, such as colours, moves
// of the cursor, resets and titles, wherever the stream is cut: see ECMA-48 and
// console_codes(4). The zero value is at the beginning.
type Sequences struct {
	within sequence
	bytes  int // of the sequence so far
}

// sequence names the part of a sequence that a byte belongs to.
type sequence int

const (
	outside      sequence = iota
	escape                // after ESC
	intermediate          // after ESC and a byte that selects, as in ESC ( B
	control               // after ESC [
	message               // of a title or for a device, up to BEL or ESC \
)

// longestSequence is where one ends that has no end.
const longestSequence = 4096

// Text takes the next byte of the stream and reports whether it is text. A line break
// always is, and ends what stands before it: nothing hides the lines after it.
func (s *Sequences) Text(b byte) bool {
	was := s.within
	s.bytes++
	switch {
	case b == '\n':
		s.within = outside
		return true
	case b == 0x1b:
		s.within, s.bytes = escape, 0
		return false
	case was == outside:
		return true
	case b == 0x18 || b == 0x1a || s.bytes == longestSequence: // CAN, SUB
		s.within = outside
	case was == message:
		if b == '\a' {
			s.within = outside
		}
	case b < ' ' || b == 0x7f: // between the bytes of a sequence, no part of it
	case b > 0x7f: // nor is the first byte of a character that is not ASCII: the sequence was cut
		s.within = outside
		return true
	case was == escape:
		s.within = after(b)
	case was == intermediate && b >= '0', was == control && b >= '@':
		s.within = outside
	}
	return false
}

// after returns what begins with ESC and b.
func after(b byte) sequence {
	switch {
	case b == '[':
		return control
	case strings.IndexByte("]P_^X", b) >= 0:
		return message
	case b < '0':
		return intermediate
	}
	return outside
}

// WithoutSequences returns what a terminal is sent as the text that it shows.
func WithoutSequences(sent string) string {
	var s Sequences
	var b strings.Builder
	for i := range len(sent) {
		if s.Text(sent[i]) {
			b.WriteByte(sent[i])
		}
	}
	return b.String()
}

// NewWriter returns a writer that passes text of another program on to people as it comes,
// up to some bytes of it, and then says that there is more. Lines are indented, so that none
// of them begins like one of ours, and what does not print becomes a question mark.
func NewWriter(to io.Writer, most int) io.Writer { return &writer{to: to, left: most} }

type writer struct {
	to   io.Writer
	left int
	rest []byte // a character of which not all bytes have come
	in   bool   // a line has begun
	full bool
}

// Write takes all of p, also what is not passed on: the program goes on.
func (w *writer) Write(p []byte) (int, error) {
	if w.full {
		return len(p), nil
	}
	text := append(w.rest, p[:min(len(p), w.left)]...)
	w.left -= min(len(p), w.left)
	var out []byte
	for len(text) > 0 && utf8.FullRune(text) {
		c, n := utf8.DecodeRune(text)
		out = w.add(out, c, n)
		text = text[n:]
	}
	w.rest = text
	if w.left == 0 {
		w.full = true
		if w.in {
			out = append(out, '\n')
		}
		out = append(out, "  … and more, which is left out\n"...)
	}
	_, err := w.to.Write(out)
	return len(p), err
}

func (w *writer) add(out []byte, c rune, size int) []byte {
	switch {
	case c == '\r':
		return out
	case c == '\n':
		w.in = false
		return append(out, '\n')
	case !w.in:
		w.in = true
		out = append(out, "  "...)
	}
	if c != '\t' && !unicode.IsPrint(c) || c == utf8.RuneError && size == 1 {
		c = '?'
	}
	return utf8.AppendRune(out, c)
}

// Without returns what of a list another one lacks.
func Without(list, other []string) []string {
	out := []string{} // a list of JSON
	for _, d := range list {
		if !slices.Contains(other, d) {
			out = append(out, d)
		}
	}
	return out
}
