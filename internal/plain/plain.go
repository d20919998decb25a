// SPDX-License-Identifier: Apache-2.0

// Package plain writes text for people. It keeps text from outside from steering the
// reader's terminal: what a registry, a layer, a user's file name or the author of a
// site says may hold escapes, carriage returns, marks that turn the direction of
// writing, and line breaks behind which a line of ours is forged.
//
// It is the only place with this rule. Code that prints for people goes through it,
// internal/cli for both programs; JSON is for programs and is not filtered.
// It imports the standard library only; everything may import it.
package plain

import (
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"
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
	lines := strings.Split(strings.Trim(text, "\r\n"), "\n")
	for i := range lines {
		lines[i] = Line(lines[i])
	}
	return strings.Join(lines, "\n  ")
}

// Sprintf is fmt.Sprintf for people to read. The format is trusted, with its line
// breaks and tabs; arguments are not: text goes through [Line], errors go through
// [Lines], and what any other value prints has its escapes taken out.
func Sprintf(format string, args ...any) string {
	if false {
		_ = fmt.Sprintf(format, args...) // has go vet check the callers' formats
	}
	clean := make([]any, len(args))
	for i, arg := range args {
		clean[i] = argument(arg)
	}
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
		out := make([]string, len(v))
		for i := range v {
			out[i] = Line(v[i])
		}
		return out
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
	for _, c := range text {
		if !unicode.IsPrint(c) || c == unicode.ReplacementChar {
			return false
		}
	}
	return true
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

// Time is when something was, for people and programs.
func Time(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}
