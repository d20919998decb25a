// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

// TestConsole: what a machine draws with is not text, wherever its console is cut.
func TestConsole(t *testing.T) {
	const sent = "\x1b[!p\x1b[2 q\x1b(B\x1b]0;boot\a[ \x1b[0;32m  OK  \x1b[0m ] Réached\r\n\x1bP+q544e\x1b\\\x1b[>4m\n\x1b[1mlogin: \x1b[0m\n"
	const want = "  console | [   OK   ] Réached\n  console | login:\n"
	for at := range len(sent) {
		var out strings.Builder
		c := &Console{To: &out}
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

// TestConsoleLongLine: a line that has no end is cut between two characters, and in no
// sequence.
func TestConsoleLongLine(t *testing.T) {
	for before := range 8 {
		var out strings.Builder
		c := &Console{To: &out}
		sent := strings.Repeat("x", longestLine-before) + "\x1b[0;1;31mä\x1b[0m" + strings.Repeat("ä", longestLine) + "\n"
		if _, err := c.Write([]byte(sent)); err != nil {
			t.Fatal(err)
		}
		shown := strings.NewReplacer("  console | ", "", "\n", "").Replace(out.String())
		if want := strings.Repeat("x", longestLine-before) + strings.Repeat("ä", longestLine+1); shown != want {
			t.Errorf("%d before: %q", before, out.String())
		}
	}
}
