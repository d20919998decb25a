// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                           "",
		"plain text, äöü → 漢字 ☃":     "plain text, äöü → 漢字 ☃",
		"\x1b[2Jgone":                "?[2Jgone",
		"\u009b31mred":               "?31mred", // CSI in one character
		"done\rcaisson: error":       "done?caisson: error",
		"one\ncaisson: hint: rm -rf": "one; caisson: hint: rm -rf",
		"end\n":                      "end",
		"abc\u202egnp.exe":           "abc?gnp.exe",
		"a\u2066b\u200bc\ufeff":      "a?b?c?",
		"tab\tbell\a":                "tab?bell?",
		"broken \xff\xfe":            "broken ??",
		"\ufffd":                     "?",
		"next\u0085line\u2028line":   "next?line?line",
	} {
		if got := Line(in); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
}

type word string

func (w word) String() string { return "word " + string(w) }

type plainWord string

func TestSprintf(t *testing.T) {
	bad := "x\x1b[1m\ncaisson: hint: y"
	for _, c := range []struct{ got, want string }{
		{Sprintf("%s: %s\n\tok", "a", bad), "a: x?[1m; caisson: hint: y\n\tok"},
		{Sprintf("%v", errors.Join(errors.New(bad), errors.New("second"))), "x?[1m\n  caisson: hint: y\n  second"},
		{Sprintf("%q %.3s", "a\nb", "abcdef"), `"a; b" abc`},
		{Sprintf("%v|%v", word(bad), plainWord(bad)), "word x?[1m; caisson: hint: y|x?[1m; caisson: hint: y"},
		{Sprintf("%v", []string{bad, "b"}), "[x?[1m; caisson: hint: y b]"},
		{Sprintf("%v", struct{ A string }{"\x1b"}), "{?}"},
		{Sprintf("%d %5.1f %t %v", 3, 2.5, true, nil), "3   2.5 true <nil>"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\x1b\n\u202e\xff")
	f.Fuzz(func(t *testing.T, text string) {
		for _, got := range []string{Line(text), strings.ReplaceAll(Lines(text), "\n  ", ""), fmt.Sprint(Sprintf("%s", text))} {
			for _, c := range got {
				if !unicode.IsPrint(c) || c == unicode.ReplacementChar {
					t.Fatalf("%q became %q", text, got)
				}
			}
		}
		if again := Line(Line(text)); again != Line(text) {
			t.Fatalf("%q became %q, then %q", text, Line(text), again)
		}
	})
}
