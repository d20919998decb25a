// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
)

// pace is how often a build that has nothing new to say off a terminal says what
// it is doing: a log without a line for half a minute looks like one that hangs.
const pace = 30 * time.Second

// progress shows events of a build, or of what is as long: a bar on a terminal, plain lines elsewhere,
// JSON lines with -o json. It talks on standard error.
type progress struct {
	app  *app
	bars *mpb.Progress // nil off a terminal
	stop func()

	mu    sync.Mutex
	last  time.Time     // when something was said
	doing builder.Event // its State is "" between steps
	since time.Time     // when that began
	step  builder.Event // that began last: it goes on when what it fetched is there
	bar   *mpb.Bar
	name  atomic.Value // string: what the bar says; read while mu may be held
}

func (a *app) progress() *progress {
	p := &progress{app: a, last: time.Now()}
	if f, isFile := a.err.(*os.File); isFile && cli.IsTerminal(f) && !a.json() && !a.quiet {
		p.bars = mpb.New(mpb.WithOutput(f), mpb.WithWidth(24))
	}
	tick, done := time.NewTicker(time.Second), make(chan struct{})
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
	if p.doing.State == "" || p.bars != nil || p.app.json() || now.Sub(p.last) < pace {
		return
	}
	p.last = now
	p.app.say("%s", state(p.doing, now.Sub(p.since)))
}

func (p *progress) event(e builder.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.app.json() {
		_ = json.NewEncoder(p.app.err).Encode(e) // talk: the build goes on without a reader
		return
	}
	switch e.State {
	case "start", "fetch", "install", "compress", "push", "write", "read", "convert":
		p.show(e)
		if e.State == "start" {
			p.step = e
		}
		if e.State == "fetch" && e.Of > 0 && e.N == e.Of && p.step.Variant == e.Variant {
			p.show(p.step)
		}
	case "cached":
		p.line("%s: unchanged%s", where(e), size(e.Bytes))
	case "done":
		p.line("%s: done%s in %.1f s", where(e), size(e.Bytes), e.Seconds)
		p.end()
	case "note":
		p.line("%s: %s", where(e), e.Text)
	}
}

// show takes up what is done now, or how far it has come.
func (p *progress) show(e builder.Event) {
	begins := e.Variant != p.doing.Variant || e.Step != p.doing.Step || e.State != p.doing.State
	p.doing = e
	if begins {
		p.since = time.Now()
	}
	if p.bars == nil {
		return
	}
	done, of := amount(e)
	p.name.Store(plain.Sprintf("%s: %s %s ", where(e), e.State, e.Text))
	if begins {
		p.end()
		p.doing = e
		p.bar = p.newBar(e, of)
	}
	p.bar.SetTotal(of, false) // a run may turn out to be longer
	p.bar.SetCurrent(done)
}

// newBar returns the bar of a piece of work. Where its size is not known it has
// none, only the time.
func (p *progress) newBar(e builder.Event, of int64) *mpb.Bar {
	name := decor.Any(func(decor.Statistics) string { return p.name.Load().(string) })
	switch {
	case of == 0:
		return p.bars.AddSpinner(0, mpb.BarRemoveOnComplete(), mpb.PrependDecorators(name),
			mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_GO)))
	case e.OfBytes > 0:
		return p.bars.AddBar(of, mpb.BarRemoveOnComplete(), mpb.PrependDecorators(name), mpb.AppendDecorators(
			decor.Counters(decor.SizeB1000(0), "% .1f of % .1f  "), decor.AverageSpeed(decor.SizeB1000(0), "% .1f  "),
			decor.AverageETA(decor.ET_STYLE_GO)))
	}
	return p.bars.AddBar(of, mpb.BarRemoveOnComplete(), mpb.PrependDecorators(name), mpb.AppendDecorators(
		decor.CountersNoUnit("%d of %d  "), decor.AverageETA(decor.ET_STYLE_GO)))
}

// end takes the bar away: nothing is being done.
func (p *progress) end() {
	p.doing = builder.Event{}
	if p.bar != nil {
		p.bar.Abort(true)
		p.bar = nil
	}
}

// line says something for good.
func (p *progress) line(format string, args ...any) {
	p.last = time.Now()
	if p.bars != nil && !p.app.quiet {
		cli.Sayf(p.bars, "caisson", format, args...) // above the bar
		return
	}
	p.app.say(format, args...)
}

// close ends the talk.
func (p *progress) close() {
	p.stop()
	p.mu.Lock()
	p.end()
	p.mu.Unlock()
	if p.bars != nil {
		p.bars.Wait()
	}
}

// where returns what an event is about. What is not of a build has no variant.
func where(e builder.Event) string { return strings.TrimPrefix(e.Variant+" "+e.Step, " ") }

// amount is how far a piece of work has come, in bytes or in packages; of is 0
// where that is not known.
func amount(e builder.Event) (done, of int64) {
	if e.OfBytes > 0 {
		return e.Bytes, e.OfBytes
	}
	return int64(e.N), int64(e.Of)
}

// state is a piece of work in one line: what, how far, how fast, how much longer.
func state(e builder.Event, took time.Duration) string {
	text := plain.Sprintf("%s: %s", where(e), e.State)
	done, of := amount(e)
	switch {
	case e.OfBytes > 0:
		text += fmt.Sprintf(" %.1f of %.1f MB", float64(done)/1e6, float64(of)/1e6)
		if took >= time.Second {
			text += fmt.Sprintf(", %.1f MB/s", float64(done)/1e6/took.Seconds())
		}
	case of > 0:
		text += fmt.Sprintf(" %d of %d", done, of)
	}
	if e.Text != "" {
		text += plain.Sprintf(" %s", e.Text)
	}
	if done > 0 && done < of && took >= time.Second {
		left := time.Duration(float64(took) * float64(of-done) / float64(done))
		return text + fmt.Sprintf(", %.0f s left", left.Seconds())
	}
	return text + fmt.Sprintf(" (%.0f s)", took.Seconds())
}

func size(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf(" %.1f MB", float64(bytes)/1e6)
}

// console shows what a machine prints, unless talk is not wanted.
func (a *app) console() *cli.Console {
	if a.quiet || a.json() {
		return &cli.Console{}
	}
	return &cli.Console{To: a.err}
}

// quote shows text of a node as talk: none of its lines begins like one of ours.
func (a *app) quote(text string) {
	for line := range strings.Lines(text) {
		if !a.quiet {
			cli.Printf(a.err, "  %s\n", strings.TrimRight(line, "\n"))
		}
	}
}
