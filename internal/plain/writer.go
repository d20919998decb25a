// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"io"
	"unicode"
	"unicode/utf8"
)

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
