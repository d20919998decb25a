// SPDX-License-Identifier: Apache-2.0

package plain

import "strings"

// Sequences finds the control sequences in what a terminal is sent, such as colours, moves
// of the cursor, resets and titles, wherever the stream is cut: see ECMA-48 and
// console_codes(4). The zero value is at the beginning.
type Sequences struct {
	within sequence
	bytes  int // of the sequence so far
}

// sequence is what a byte belongs to.
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
	case b > 0x7f: // nor is what begins a character that is not ASCII: the sequence was cut
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
