// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
)

// consoleWriter shows a machine's console as talk, a line at a time. What the machine
// prints steers nobody's terminal.
type consoleWriter struct {
	app *app

	mu        sync.Mutex
	sequences plain.Sequences
	line      []byte
	muted     bool
}

// longestConsoleLine is where a line is taken apart that has no end.
const longestConsoleLine = 1000

func (c *consoleWriter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range p {
		if !c.sequences.Text(b) {
			continue
		}
		if full := len(c.line) - longestConsoleLine; b == '\n' || full >= utf8.UTFMax || full >= 0 && utf8.RuneStart(b) {
			c.show()
		}
		if b != '\n' && b != '\r' {
			c.line = append(c.line, b)
		}
	}
	return len(p), nil
}

// show prints what has come of a line. The lock is held.
func (c *consoleWriter) show() {
	text := strings.TrimSpace(string(c.line))
	c.line = c.line[:0]
	if text != "" && !c.muted && !c.app.quiet && !c.app.json() {
		cli.Printf(c.app.err, "  console | %s\n", text)
	}
}

// mute ends the show: the terminal is somebody else's.
func (c *consoleWriter) mute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.muted = true
}

// quote shows text of a node as talk: none of its lines begins like one of ours.
func (a *app) quote(text string) {
	for line := range strings.Lines(text) {
		if !a.quiet {
			cli.Printf(a.err, "  %s\n", strings.TrimRight(line, "\n"))
		}
	}
}
