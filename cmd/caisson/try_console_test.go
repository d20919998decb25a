// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/sandbox"
)

// TestTryConsole: what a machine draws with is not text, wherever its console is cut.
func TestTryConsole(t *testing.T) {
	const sent = "\x1b[!p\x1b[2 q\x1b(B\x1b]0;boot\a[ \x1b[0;32m  OK  \x1b[0m ] Réached\r\n\x1bP+q544e\x1b\\\x1b[>4m\n\x1b[1mlogin: \x1b[0m\n"
	const want = "  console | [   OK   ] Réached\n  console | login:\n"
	for at := range len(sent) {
		var out strings.Builder
		c := &consoleWriter{app: &app{err: &out}}
		for _, part := range []string{sent[:at], sent[at:]} {
			if n, err := c.Write([]byte(part)); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if out.String() != want {
			t.Fatalf("cut at %d: %q", at, out.String())
		}
	}
}

// TestTryConsoleLongLine: a line that has no end is cut between two characters, and in no
// sequence.
func TestTryConsoleLongLine(t *testing.T) {
	for before := range 8 {
		var out strings.Builder
		c := &consoleWriter{app: &app{err: &out}}
		sent := strings.Repeat("x", longestConsoleLine-before) + "\x1b[0;1;31mä\x1b[0m" + strings.Repeat("ä", longestConsoleLine) + "\n"
		if _, err := c.Write([]byte(sent)); err != nil {
			t.Fatal(err)
		}
		shown := strings.NewReplacer("  console | ", "", "\n", "").Replace(out.String())
		if want := strings.Repeat("x", longestConsoleLine-before) + strings.Repeat("ä", longestConsoleLine+1); shown != want {
			t.Errorf("%d before: %q", before, out.String())
		}
	}
}

// TestTryShowsWhatChecksSay: what a command printed is shown, whether it passed or not.
func TestTryShowsWhatChecksSay(t *testing.T) {
	var out, talk strings.Builder
	a := &app{out: &out, err: &talk}
	err := a.tried(tried{Node: "n1", Reason: "check false", Checks: []sandbox.Check{
		{Command: "uptime", Passed: true, Output: "up 1 min\n"}, {Command: "false", Exit: 1, Output: "no\n"},
	}}, tryFlags{})
	if err == nil || out.String() != "FAILED\tn1\tcheck false\npassed\tcheck\tuptime\nFAILED\tcheck\tfalse\n" {
		t.Errorf("%v, %q", err, out.String())
	}
	if got, want := talk.String(), "  up 1 min\ncaisson: false ended with 1\n  no\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
