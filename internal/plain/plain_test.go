// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
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

// TestBytes: disks are said as their labels say them.
func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0.0 kB", 12_345: "12.3 kB", 86_500_000: "86.5 MB", 2_411_724_800: "2.4 GB", 960_197_124_096: "960.2 GB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// TestCut: a text that is cut says so, and no character is cut in two.
func TestCut(t *testing.T) {
	for text, want := range map[string]string{"": "", "abcd": "abcd", "abcde": "abcd…", "abcäe": "abc…"} {
		if got := Cut(text, 4); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{2 * time.Hour: "2h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 0: "0s", 10 * time.Second: "10s",
		time.Hour + 20*time.Second: "1h0m20s", 20*time.Hour + 10*time.Minute: "20h10m", 1500 * time.Millisecond: "1.5s"} {
		if got := Duration(d); got != want {
			t.Errorf("%s is written as %q, want %q", d, got, want)
		}
	}
}

func TestNatural(t *testing.T) {
	want := "1 2 10 n n1 n01 n2 n9-10 n10 n10-2 n10-10 n99999999999999999998 n99999999999999999999 r1 r1a r1b rack"
	names := strings.Fields(want)
	slices.Reverse(names)
	if got := strings.Join(Names(slices.Values(names)), " "); got != strings.ReplaceAll(want, "n1 n01", "n01 n1") {
		t.Errorf("%s", got)
	}
}

// Whatever names are given, they have one order: sorting needs that.
func FuzzNatural(f *testing.F) {
	f.Add("n1", "n01", "n2")
	f.Add("a10b", "a9", "a10")
	f.Add("", "0", "00")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if Natural(a, b) != -Natural(b, a) || (Natural(a, b) == 0) != (a == b) {
			t.Errorf("%q, %q", a, b)
		}
		list := []string{a, b, c}
		slices.SortFunc(list, Natural)
		if cmp.Compare(Natural(list[0], list[2]), 0) > 0 {
			t.Errorf("%q is not sorted", list)
		}
	})
}

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

// TestWriter: what another program says does not steer a terminal, whatever pieces it comes in.
func TestWriter(t *testing.T) {
	for said, want := range map[string]string{
		"":                               "",
		"touch the key: ":                "  touch the key: ",
		"one\r\ntwo\n":                   "  one\n  two\n",
		"\x1b]0;title\x07\x1b[2Kdone\n":  "  ?]0;title??[2Kdone\n",
		"caisson: \u202edetrevni\n\n…\t": "  caisson: ?detrevni\n\n  …\t",
		"\xff\xe2\x82":                   "  ?",
	} {
		for _, piece := range []int{1, 2, 100} {
			var out bytes.Buffer
			w := NewWriter(&out, 1000)
			for p := []byte(said); len(p) > 0; {
				n := min(piece, len(p))
				if took, err := w.Write(p[:n]); took != n || err != nil {
					t.Fatal(took, err)
				}
				p = p[n:]
			}
			if out.String() != want {
				t.Errorf("%q in pieces of %d is %q, want %q", said, piece, out.String(), want)
			}
		}
	}
}

// TestWriterEnds: a program that does not stop talking fills no log.
func TestWriterEnds(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out, 100)
	for range 1000 {
		if n, err := w.Write([]byte("more and more")); n != 13 || err != nil {
			t.Fatal(n, err)
		}
	}
	if out.Len() > 200 || !strings.HasSuffix(out.String(), "… and more, which is left out\n") {
		t.Errorf("%d bytes: %q", out.Len(), out.String())
	}
}
