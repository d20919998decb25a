// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/caisson-os/caisson/internal/plain"
)

// Console shows a machine's console as talk, a line at a time. What the machine
// prints steers nobody's terminal.
type Console struct {
	To io.Writer // nil shows nothing

	mu        sync.Mutex
	sequences plain.Sequences
	line      []byte
}

// longestLine is where a line is taken apart that has no end.
const longestLine = 1000

// Write implements io.Writer, and takes everything.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range p {
		if !c.sequences.Text(b) {
			continue
		}
		if full := len(c.line) - longestLine; b == '\n' || full >= utf8.UTFMax || full >= 0 && utf8.RuneStart(b) {
			c.show()
		}
		if b != '\n' && b != '\r' {
			c.line = append(c.line, b)
		}
	}
	return len(p), nil
}

// show prints what has come of a line. The lock is held.
func (c *Console) show() {
	text := strings.TrimSpace(string(c.line))
	c.line = c.line[:0]
	if text != "" && c.To != nil {
		Printf(c.To, "  console | %s\n", text)
	}
}

// Mute ends the show: the terminal is somebody else's.
func (c *Console) Mute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.To = nil
}
