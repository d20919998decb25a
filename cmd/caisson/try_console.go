// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"regexp"
	"strings"
	"sync"

	"github.com/caisson-os/caisson/internal/cli"
)

// consoleWriter shows a machine's console as talk, a line at a time. What the machine
// prints steers nobody's terminal.
type consoleWriter struct {
	app *app

	mu    sync.Mutex
	line  []byte
	muted bool
}

// longestConsoleLine is where a line is taken apart that has no end.
const longestConsoleLine = 1000

// escapes are what colours, cursors and titles are made of, see console_codes(4).
var escapes = regexp.MustCompile(`\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)`)

func (c *consoleWriter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range p {
		if b != '\n' {
			c.line = append(c.line, b)
		}
		if b == '\n' || len(c.line) >= longestConsoleLine {
			c.show()
		}
	}
	return len(p), nil
}

// show prints what has come of a line. The lock is held.
func (c *consoleWriter) show() {
	text := strings.TrimSpace(string(escapes.ReplaceAll(bytes.ReplaceAll(c.line, []byte("\r"), nil), nil)))
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
