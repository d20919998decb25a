// SPDX-License-Identifier: Apache-2.0

// Package progress shows how far a build is, or what takes as long: as a bar on a terminal, as plain
// lines elsewhere, or as lines of JSON.
//
// It is told of events, and knows nothing of what is made. cmd/caisson imports it.
package progress

import (
	"encoding/json"
	"fmt"
	"io"
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

// Voice says where to talk, and how much.
type Voice struct {
	To          io.Writer
	JSON, Quiet bool
	Say         func(format string, args ...any) // a plain line
}

// Progress shows events.
type Progress struct {
	Voice
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

// Begin begins to show what it is told.
func Begin(v Voice) *Progress {
	p := &Progress{Voice: v, last: time.Now()}
	if f, isFile := v.To.(*os.File); isFile && cli.IsTerminal(f) && !v.JSON && !v.Quiet {
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
func (p *Progress) still(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doing.State == "" || p.bars != nil || p.JSON || now.Sub(p.last) < pace {
		return
	}
	p.last = now
	p.Say("%s", state(p.doing, now.Sub(p.since)))
}

// Event shows one.
func (p *Progress) Event(e builder.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.JSON {
		_ = json.NewEncoder(p.To).Encode(e) // talk: the build goes on without a reader
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
		p.line("%s: unchanged%s", where(e), Size(e.Bytes))
	case "done":
		p.line("%s: done%s in %.1f s", where(e), Size(e.Bytes), e.Seconds)
		p.end()
	case "note":
		p.line("%s: %s", where(e), e.Text)
	}
}

// show takes up what is done now, or how far it has come.
func (p *Progress) show(e builder.Event) {
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
func (p *Progress) newBar(e builder.Event, of int64) *mpb.Bar {
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
func (p *Progress) end() {
	p.doing = builder.Event{}
	if p.bar != nil {
		p.bar.Abort(true)
		p.bar = nil
	}
}

// line says something for good.
func (p *Progress) line(format string, args ...any) {
	p.last = time.Now()
	if p.bars != nil && !p.Quiet {
		cli.Sayf(p.bars, "caisson", format, args...) // above the bar
		return
	}
	p.Say(format, args...)
}

// Close ends the talk.
func (p *Progress) Close() {
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
	if done > of/20 && done < of && took >= time.Second { // before that it says little
		left := time.Duration(float64(took) * float64(of-done) / float64(done))
		return text + fmt.Sprintf(", %.0f s left", left.Seconds())
	}
	return text + fmt.Sprintf(" (%.0f s)", took.Seconds())
}

// Size returns megabytes with a blank before them, "" for none.
func Size(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf(" %.1f MB", float64(bytes)/1e6)
}
