// SPDX-License-Identifier: Apache-2.0

// Package cycle reads what a decision depends on, asks package decide, and does what was
// decided, until an act is the last one. Each act notes what it is about to do before it
// does it, so that a cut at any point ends with what ran before.
//
//	event                      what is asked: a type each, in looked.go, change.go, judge.go
//	facts(Snapshot) -> Facts   reads, changes nothing, asks nobody
//	decide.Next(Facts) -> Step pure, one table
//	act(Snapshot, Step)        of the event: one case an act
package cycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/early"
	"github.com/caisson-os/caisson/bootagent/node/effect"
	"github.com/caisson-os/caisson/bootagent/node/look"
	"github.com/caisson-os/caisson/bootagent/node/operate"
	"github.com/caisson-os/caisson/bootagent/node/soak"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/metrics"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Cycle is that of an open node.
type Cycle struct {
	ByHand      bool // a person asks, and not the service
	Owner       *record.Owner
	Reached     func(ctx context.Context, within time.Duration) error // asks the registry, for as long as within
	Decided     decide.Observer
	Log         effect.Log
	Effect      *effect.Effect
	Destination *destination.Destination
	Soak        *soak.Soak
	Operations  *operate.Operations
	Holds       *operate.Holds
	Look        *look.Look
	Starts      *early.Early
}

// maxSteps is many times what a turn takes: one that takes more finds again and again what it
// has just acted on.
const maxSteps = 32

// event leads to a decision: a type each, with what it needs of its own.
type event interface {
	// facts says which event of the table it is, what runs by it, and what it has of its own. It
	// reads, and changes nothing.
	facts(c *Cycle, now record.Snapshot, f *decide.Facts) error

	// act does what was decided, and returns what is to be decided next; nil ends the turn.
	act(ctx context.Context, c *Cycle, now record.Snapshot, step decide.Step) (event, *spec.Status, error)
}

// cycle decides and acts, until an act is the last one.
func (c *Cycle) cycle(ctx context.Context, e event) (st *spec.Status, err error) {
	var step decide.Step
	for range maxSteps {
		now, err := c.Owner.Read()
		if err != nil {
			return nil, err
		}
		f, err := c.facts(now, e, ctx.Err() != nil)
		if err != nil {
			return nil, err
		}
		step = c.Decided.Next(f)
		if step.Act.Changes() {
			c.Owner.Remember(func(l *record.Live) { metrics.CountTransition(&l.Counts, step.Name) })
		}
		e, st, err = e.act(ctx, c, now, step)
		if e == nil || err != nil {
			return st, err
		}
	}
	return nil, fmt.Errorf("%d decisions led to no end, the last one was %s", maxSteps, step.Name)
}

// last, then and noAct are how an act ends: with a status, with what is decided next, and where
// its event has no such act, see TestEveryActIsDone.
func last(st *spec.Status, err error) (event, *spec.Status, error) { return nil, st, err }
func then(next event, err error) (event, *spec.Status, error)      { return next, nil, err }
func noAct(step decide.Step) (event, *spec.Status, error) {
	return nil, nil, fmt.Errorf("%s: no act %q", step.Name, step.Act)
}

// facts reads what the next decision depends on. It changes nothing.
func (c *Cycle) facts(now record.Snapshot, e event, ended bool) (*decide.Facts, error) {
	s, b := now.State, now.Boot
	f := &decide.Facts{
		Attached: b.Mode == spec.ModeAttached, Begun: c.Effect.Begun(),
		Remembers: b.Disk != "" && !b.ReadOnly && c.Effect.Folder.Unsaved() == nil,
		Boot:      c.Effect.Scopes.Kernel, Up: c.Effect.Clock.Up(), Now: time.Now().Unix(), Ended: ended, Retry: c.Destination.Retries,
		Best: s.Best(), Current: s.Current, Staged: s.Staged, Ahead: s.Ahead, Root: b.Generation, Without: b.Live.Without,
	}
	if trial := s.Trial; trial != nil && !trial.Pending() {
		f.Undone = &trial.Generation
	}
	err := e.facts(c, now, f)
	if err == nil {
		f.Run, err = c.Operations.Phase(now, f.Runs)
	}
	return f, err
}

// Settle ends what was left unfinished, and may have gone wrong, while nobody looked.
func (c *Cycle) Settle(ctx context.Context) error {
	if c.Effect.Tracker == nil {
		return nil
	}
	_, err := c.cycle(ctx, begin{})
	return err
}

// Apply reconciles the node with the overlay it runs. A generation that was
// staged for this boot is promoted: it came up and was applied.
func (c *Cycle) Apply(ctx context.Context) (*spec.Status, error) {
	if c.Effect.Tracker == nil {
		return nil, c.Effect.Unbound
	}
	if err := c.Settle(ctx); err != nil {
		return nil, err
	}
	e, err := c.looks()
	if err != nil {
		return nil, err
	}
	st, err := c.cycle(ctx, e)
	if err == nil {
		err = c.Starts.Follow()
	}
	return st, err
}

// Early sets what of the overlay that this root runs is to be there at a moment before services
// start.
func (c *Cycle) Early(ctx context.Context, when spec.When) error {
	found, err := c.Effect.Found()
	if err != nil || found == nil {
		return err
	}
	now, err := c.Owner.Read()
	if err != nil {
		return err
	}
	is, err := c.Operations.Phase(now, c.Effect.Runs(now.State))
	if err == nil {
		_, err = c.cycle(ctx, starting{c.Starts.Plan(now.State, found, is.Phase != decide.Entering, when)})
	}
	return err
}

// Sync asks for a newer generation and applies it when the running root can take
// it, all of it or nothing. What needs another root is staged for the next boot.
// A refusal changes nothing: the node goes on as it is. So does a change that
// fails; then there is a status and an error.
func (c *Cycle) Sync(ctx context.Context) (*spec.Status, error) {
	if c.Effect.Tracker == nil {
		return nil, c.Effect.Unbound
	}
	st, err := c.sync(ctx)
	c.Destination.FreeMemory() // what waits may be another layer now
	if c.ByHand {              // that leaves a trace, whatever comes of it
		b := c.Owner.Boot()
		c.Log.Record("asked", events.With("sync", b.Sync), events.With("why", b.SyncDetail))
	}
	return st, err
}

func (c *Cycle) sync(ctx context.Context) (*spec.Status, error) {
	if err := c.Settle(ctx); err != nil {
		return nil, err
	}
	var t answered
	var err error
	if t.before, err = c.Effect.Found(); err != nil { // the keys were changed, or the disk was: what the registry has may still be good
		c.Log.Say("the running overlay is missing or no longer verifies: %v", err)
	}
	t.next, t.fault = c.Effect.Tracker.Sync(ctx)
	sync, detail := track.Describe(t.fault)
	if t.fault != nil {
		t.next = nil
		if refusal.Of(t.fault) != "" {
			c.Log.Note(state.Generation{}, t.fault, spec.Event{Event: spec.EventRefused, Did: "goes on with what it has"})
		}
	} else {
		if err := errors.Join(c.Destination.NoteHad(t.next), c.Destination.ForThisRoot(ctx, t.before, t.next)); err != nil {
			return nil, err
		}
		sync, detail = c.Destination.Axis(t.next)
	}
	noted := c.Owner.Note(func(l *record.Live) {
		l.Asked = time.Now().Unix()
		metrics.CountFetch(&l.Counts, t.fault, time.Now())
		same := t.before != nil && t.next != nil && t.before.Generation.Overlay == t.next.Generation.Overlay
		if same || t.next != nil && t.next.Unchanged { // the publisher took back what could not be applied
			l.TakenBack = nil
		}
	})
	if err := errors.Join(noted, c.Owner.SetSync(sync, detail)); err != nil {
		return nil, errors.Join(t.fault, err)
	}
	return c.cycle(ctx, t)
}

// enforce makes the node as an overlay says.
func (c *Cycle) enforce(ctx context.Context, found *track.Found) (*spec.Status, error) {
	guard := c.Effect.Guard(found)
	result := c.Effect.LookAt(ctx, found, func(ctx context.Context) items.Result {
		return items.Keep(ctx, c.Effect.Items(found), c.Effect.Journal, guard)
	})
	c.Effect.Services.Note(&found.Overlay)
	c.Log.RecordChanges(result, found.Generation.Generation, c.Effect.Cause(guard != nil))
	remember := c.Effect.Corrections().Keep
	if guard == nil {
		remember = c.Effect.Corrections().Begin
	}
	if err := c.Effect.Counted(remember(found.Generation.Overlay)); err != nil {
		return nil, err
	}
	if err := c.Effect.Retire(ctx, result); err != nil {
		return nil, err
	}
	if err := c.settle(ctx, inEffect{next: found, result: result, applied: true, keeps: true}); err != nil {
		return nil, err
	}
	return c.Look.Report(found, result)
}
