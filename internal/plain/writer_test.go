// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"bytes"
	"strings"
	"testing"
)

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
