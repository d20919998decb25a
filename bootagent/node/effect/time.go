// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/node/policy"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// madeWithin is how long a change of the running root may take to be made, or to be
// taken back, beside what its programs take.
const madeWithin = 5 * time.Minute

// MakingTime is how long it may take to make what an overlay asks for: each mount, swap and
// unit has a minute for its programs. Foreground scripts have their own timeouts, and what
// they take comes on top.
func (ef *Effect) MakingTime(o *spec.Overlay) time.Duration {
	return cmp.Or(ef.Made, madeWithin+time.Duration(o.Items.Programs())*time.Minute)
}

// watch returns what times the runs under a context. Scripts that they wait for count
// neither there nor for a deadline.
func (ef *Effect) watch(ctx context.Context) (context.Context, *stopwatch) {
	w := new(stopwatch)
	return item.HearScripts(ctx, func(limit time.Duration) func() {
		moved, ends := w.script(limit), []func() error(nil)
		for _, file := range []string{paths.RunDeadline, paths.RunJudged} {
			ended, err := uptime.BeginScript(ef.Path(file), ef.Clock.Up, limit)
			if err != nil {
				ef.Log.Say("%v", err) // it counts for the deadline, then
				continue
			}
			ends = append(ends, ended)
		}
		return func() {
			moved()
			for _, ended := range ends {
				fault.Say(ef.Log.Say, ended()) // as above
			}
		}
	}), w
}

// LookAt gives a look at what runs, and the corrections that it leads to, the time of a
// change. A run that only reads is its caller's to end.
func (ef *Effect) LookAt(ctx context.Context, found *track.Found, run func(context.Context) items.Result) items.Result {
	if !ef.Alone {
		return run(ctx)
	}
	return ef.Bounded(ctx, "a look", found, ef.MakingTime(&found.Overlay), run)
}

// Look looks at what runs, and changes nothing.
func (ef *Effect) Look(ctx context.Context, found *track.Found) items.Result {
	return ef.LookAt(ctx, found, func(ctx context.Context) items.Result {
		return items.Look(ctx, ef.Items(found), ef.Guard(found))
	})
}

// Bounded gives something that is made of an overlay its time, and ends this process when
// it is over: what heeds its context has deadlines of its own, and what takes longer is a
// system call that hangs. The next agent begins where this one began.
func (ef *Effect) Bounded(ctx context.Context, what string, found *track.Found, limit time.Duration,
	run func(context.Context) items.Result) items.Result {
	ctx, watch := ef.watch(ctx)
	ctx, stop := ef.endAfter(ctx, watch, what, found, limit)
	defer stop()
	return run(ctx)
}

func (ef *Effect) endAfter(ctx context.Context, watch *stopwatch, what string, found *track.Found,
	limit time.Duration) (_ context.Context, stop func() bool) {
	doing := new(items.Doing)
	return items.Tell(ctx, doing), watch.after(limit, func() {
		lastWords()
		step, item := doing.Step()
		why := fmt.Errorf("%s did not end within %s: %s does not end", what, limit, step)
		ef.Log.Note(found.Generation, why, spec.Event{Event: spec.EventHung, Item: item, Did: "ended the agent, whose next one looks again",
			Console: events.Console(events.Kmsg)})
		ef.Log.Record("hung", events.With("generation", found.Generation.Generation), events.With("why", why))
		ef.Log.Say("%v; this agent ends", why)
		os.Exit(1)
	})
}

// InTime gives a change its time. What heeds its context ends then, and the change is
// taken back as any that fails. For that there is as much time as it takes to make what
// ran before; what hangs all the same is a system call, and only the end of its process
// ends that, see abandon: forget has the state know that next is not to be made again.
func (ef *Effect) InTime(parent context.Context, before, next *track.Found,
	forget func(s *state.State, why string)) (_ context.Context, made func(items.Result) items.Result) {
	limit, ran := ef.MakingTime(&next.Overlay), &spec.Overlay{}
	if before != nil {
		ran = &before.Overlay
	}
	late, doing := fmt.Errorf("it was not made within %s", limit), new(items.Doing)
	ctx, watch := ef.watch(items.Tell(parent, doing))
	ctx, cancel := context.WithCancelCause(ctx)
	var at struct{ step, item string } // when the time was over
	soft := watch.after(limit, func() {
		at.step, at.item = doing.Step()
		cancel(late)
	})
	hard := watch.after(limit+ef.MakingTime(ran), func() { ef.abandon(next, before, late, doing, forget) })
	return timed{ctx, parent}, func(r items.Result) items.Result {
		soft()
		hard()
		if r.Err != nil && errors.Is(context.Cause(ctx), late) {
			r.Err = items.About(at.item, fmt.Errorf("%w: %s did not end: %w", late, at.step, r.Err))
		}
		cancel(nil)
		return r
	}
}

// timed is a context with a deadline that moves. It asks the one above it first, which knows
// more where it is not one of package context.
type timed struct {
	context.Context
	parent context.Context
}

// Err implements context.Context.
func (t timed) Err() error {
	if err := t.parent.Err(); err != nil || t.Context.Err() == nil {
		return err
	}
	return context.DeadlineExceeded
}

// lastWords ends this process in a while, whatever comes of what it still writes: what
// hangs may be the disk that it writes to.
func lastWords() { time.AfterFunc(30*time.Second, func() { os.Exit(1) }) }

// abandon ends this process with the change that it is at. What forget says is on the disk
// before, and the next process puts all back that this one did.
func (ef *Effect) abandon(next, before *track.Found, late error, doing *items.Doing, forget func(s *state.State, why string)) {
	lastWords()
	step, item := doing.Step()
	why := fmt.Errorf("%w: %s does not end", late, step)
	did := "ended the agent, whose next one starts from the beginning"
	if before != nil {
		did = fmt.Sprintf("ended the agent, whose next one puts generation %d in effect again", before.Generation.Generation)
	}
	ef.Log.Note(next.Generation, why, spec.Event{Event: spec.EventOverdue, Item: item, Did: did, Console: events.Console(events.Kmsg)})
	ef.Log.Record("overdue", events.With("generation", next.Generation.Generation), events.With("why", why))
	folder := state.View(ef.Folder.Path()) // of its own: what the others remember of it is theirs
	folder.Beside(ef.Path(paths.RunState))
	s, err := folder.Load()
	if err == nil {
		forget(s, why.Error())
		err = folder.SaveVerdict(s)
	}
	if book, bookErr := policy.Open(folder.Path(), ef.Scopes.Kernel); bookErr == nil { // else they are counted again
		err = errors.Join(err, ef.Counted(book.Begin("")))
	}
	fault.Say(ef.Log.Say, err)
	ef.Log.Say("generation %d: %v; this agent ends", next.Generation.Generation, why)
	os.Exit(1)
}

// stopwatch has something happen after a time in which scripts are not counted: each has a
// timeout of its own. One script is waited for at a time.
type stopwatch struct {
	mu     sync.Mutex
	alarms []*alarm
}

type alarm struct {
	timer *time.Timer
	at    time.Time
}

// after has something happen after a time; stop reports whether it came before that.
func (w *stopwatch) after(limit time.Duration, do func()) (stop func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := &alarm{time.AfterFunc(limit, do), time.Now().Add(limit)}
	w.alarms = append(w.alarms, a)
	return a.timer.Stop
}

// script puts all off by what a script may take, until it has ended: then by what it took.
func (w *stopwatch) script(limit time.Duration) (ended func()) {
	began := time.Now()
	w.move(limit)
	return func() { w.move(min(0, time.Since(began)-limit)) }
}

// move puts all off that has not happened.
func (w *stopwatch) move(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.alarms {
		if a.timer.Stop() {
			a.at = a.at.Add(by)
			a.timer.Reset(time.Until(a.at))
		}
	}
}
