// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
)

// progress shows a build's events: one line that changes on a terminal, plain
// lines elsewhere, JSON lines with -o json. It talks on standard error.
type progress struct {
	app      *app
	terminal bool
	dirty    bool // the changing line is on the screen
	last     time.Time
}

func (a *app) progress() *progress {
	f, isFile := a.err.(*os.File)
	return &progress{app: a, terminal: isFile && cli.IsTerminal(f) && !a.json()}
}

func (p *progress) event(e builder.Event) {
	if p.app.json() {
		_ = json.NewEncoder(p.app.err).Encode(e) // talk: the build goes on without a reader
		return
	}
	switch e.State {
	case "install", "fetch":
		if p.terminal && time.Since(p.last) > 100*time.Millisecond {
			p.last = time.Now()
			p.status("%s %s: %s %d/%d%s %s", e.Variant, e.Step, e.State, e.N, e.Of, size(e.Bytes), e.Text)
		}
	case "start", "compress":
		if p.terminal {
			p.status("%s %s: %s", e.Variant, e.Step, e.State)
		}
	case "cached":
		p.line("%s %s: unchanged%s", e.Variant, e.Step, size(e.Bytes))
	case "done":
		p.line("%s %s: done%s in %.1f s", e.Variant, e.Step, size(e.Bytes), e.Seconds)
	case "note":
		p.line("%s %s: %s", e.Variant, e.Step, e.Text)
	}
}

func size(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf(" %.1f MB", float64(bytes)/1e6)
}

func (p *progress) status(format string, args ...any) {
	text := plain.Sprintf("%.100s", plain.Sprintf(format, args...)) // a line that breaks could not be cleared
	fmt.Fprintf(p.app.err, "\r\x1b[K%s", text)
	p.dirty = true
}

func (p *progress) line(format string, args ...any) {
	p.close()
	p.app.say(format, args...)
}

// close clears the changing line.
func (p *progress) close() {
	if p.dirty {
		fmt.Fprint(p.app.err, "\r\x1b[K")
		p.dirty = false
	}
}
