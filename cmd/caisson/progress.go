// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
)

// pace is how often a build that has nothing new to say off a terminal says what
// it is doing: a log without a line for half a minute looks like one that hangs.
const pace = 2 * time.Second

// progress shows a build's events: one line that changes on a terminal, plain
// lines elsewhere, JSON lines with -o json. It talks on standard error.
type progress struct {
	app      *app
	terminal bool
	stop     func()

	mu    sync.Mutex
	dirty bool // the changing line is on the screen
	last  time.Time
	doing string // "" between steps
	since time.Time
}

func (a *app) progress() *progress {
	f, isFile := a.err.(*os.File)
	p := &progress{app: a, terminal: isFile && cli.IsTerminal(f) && !a.json(), last: time.Now()}
	tick, done := time.NewTicker(pace/4), make(chan struct{})
	p.stop = sync.OnceFunc(func() { tick.Stop(); close(done) })
	go func() {
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				p.still(time.Now())
			}
		}
	}()
	return p
}

// still says what is being done when nothing else was said for a while.
func (p *progress) still(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doing == "" || p.terminal || p.app.json() || now.Sub(p.last) < pace {
		return
	}
	p.last = now
	p.app.say("%s (%.0f s)", p.doing, now.Sub(p.since).Seconds())
}

func (p *progress) event(e builder.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.app.json() {
		_ = json.NewEncoder(p.app.err).Encode(e) // talk: the build goes on without a reader
		return
	}
	switch e.State {
	case "install", "fetch":
		p.doing = plain.Sprintf("%s %s: %s %d/%d%s %s", e.Variant, e.Step, e.State, e.N, e.Of, size(e.Bytes), e.Text)
		if p.terminal && time.Since(p.last) > 100*time.Millisecond {
			p.last = time.Now()
			p.status("%s", p.doing)
		}
	case "start", "compress":
		p.doing = plain.Sprintf("%s %s: %s", e.Variant, e.Step, e.State)
		if e.State == "start" {
			p.since = time.Now()
		}
		if p.terminal {
			p.status("%s", p.doing)
		}
	case "cached":
		p.line("%s %s: unchanged%s", e.Variant, e.Step, size(e.Bytes))
	case "done":
		p.line("%s %s: done%s in %.1f s", e.Variant, e.Step, size(e.Bytes), e.Seconds)
		p.doing = ""
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
	p.clear()
	p.last = time.Now()
	p.app.say(format, args...)
}

// close ends the talk.
func (p *progress) close() {
	p.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing = ""
	p.clear()
}

// clear removes the changing line.
func (p *progress) clear() {
	if p.dirty {
		fmt.Fprint(p.app.err, "\r\x1b[K")
		p.dirty = false
	}
}
