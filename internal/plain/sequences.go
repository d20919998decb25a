// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
