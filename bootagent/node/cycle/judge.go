// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/soak"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// again is how long after a look the next one is due, when none was found to be.
const again = time.Minute

// Judge does what follows from a look at the checks of what was in effect before it.
func (c *Cycle) Judge(ctx context.Context, before *soak.Judged, looked gate.Record) (wait time.Duration, st *spec.Status, err error) {
	if err := c.Settle(ctx); err != nil { // else what is undone and what is judged would be put back at once
		return 0, nil, err
	}
	now, err := c.Soak.Judging()
	if err != nil || now == nil {
		return 0, nil, err
	}
	if !reflect.DeepEqual(now.Record, before.Record) {
		return time.Second, nil, nil // another change was put in effect, or a verb has looked at it meanwhile
	}
	if err := looked.Save(c.Effect.Path(paths.RunGates)); err != nil {
		return 0, nil, err
	}
	now.Record = looked
	e := &judged{of: now}
	if err := e.judge(c); err != nil {
		return 0, nil, err
	}
	if st, err = c.cycle(ctx, e); err != nil || st == nil {
		return e.wait, st, err
	}
	return e.wait, st, c.Look.Keep(st)
}

// judged is a look at the checks of what is in effect.
type judged struct {
	of      *soak.Judged
	verdict gate.Verdict
	paused  string        // of one that failed: why nothing may be changed now
	good    *track.Found  // of one that failed: what it can go back to, nil where that is nothing
	wait    time.Duration // until the next look, 0 where nothing is judged any more
}

// judge says what the checks have found, and what there is to go back to where one failed.
func (e *judged) judge(c *Cycle) error {
	now, err := c.Owner.Read()
	if err != nil {
		return err
	}
	s, failed := now.State, e.of.Found.Generation
	e.good = nil
	if e.verdict = c.Soak.Verdict(s, e.of); e.verdict.State != gate.Failed {
		return nil
	}
	if e.paused, err = c.Effect.PausedBy(e.of.Found); e.paused != "" || err != nil {
		return err
	}
	best := s.Best()
	if failed.Pair(now.Boot.Generation) {
		best = s.Back(failed)
	}
	if best == nil || best.Pair(failed) {
		return nil
	}
	if e.good, err = c.Effect.Tracker.Recall(best); err != nil {
		c.Log.Say("what ran before cannot come back: %v", err)
		e.good = nil
	}
	return nil
}

func (e *judged) facts(c *Cycle, now record.Snapshot, f *decide.Facts) error {
	f.Event, f.Runs, f.Paused = decide.Judged, &e.of.Found.Generation, e.paused
	f.Gates = decide.Gates{Passed: e.verdict.State == gate.Passed, Failed: e.verdict.State == gate.Failed, Why: e.verdict.Why}
	if e.good == nil {
		return nil
	}
	failed, good := e.of.Found.Generation, e.good.Generation
	read := f.Remembers && failed.Pair(now.Boot.Generation) && len(spec.Unread(&e.good.Overlay.Items, &e.of.Found.Overlay.Items)) > 0
	f.Gates.Good, f.Gates.CutOff, f.Gates.SameLayer = true, read || e.cutOff(), c.Effect.Root.RunsHere(good.Layer)
	f.Gates.Live, _ = c.Destination.Extent(e.of.Found, e.good)
	f.Gates.Soft = c.Destination.SoftBack(now.State, failed, good, e.verdict.Why)
	return nil
}

// cutOff reports whether what failed is that this boot does not reach the registry.
func (e *judged) cutOff() bool { return e.verdict.Check == gate.Reach.Name }

func (e *judged) act(ctx context.Context, c *Cycle, _ record.Snapshot, step decide.Step) (next event, st *spec.Status, err error) {
	switch step.Act {
	case decide.Prove:
		if err := c.promote(e.of.Found.Generation, step); err != nil {
			return nil, nil, err
		}
		return last(c.Look.Status(ctx))
	case decide.LookAgain:
		if step.Why != "" {
			e.wait = again
			c.Log.Say("a gate failed, and nothing is changed now: %s", step.Why)
			return nil, nil, nil
		}
		e.wait = c.Soak.NextLook(e.of)
		return last(c.Look.Status(ctx))
	case decide.BackLive, decide.BackBoot:
		return c.goBack(ctx, e, step)
	case decide.KeepLooking:
		return last(c.remainBroken(ctx, e, step))
	}
	return noAct(step)
}

// inEffect is a generation that is in effect.
type inEffect struct {
	next    *track.Found
	result  items.Result
	keeps   bool // it was kept in effect
	applied bool // a run has applied it
	rests   bool // it says that nothing is to be changed
	reach   bool // it has to reach the registry, too
}

// settle decides what follows from that a generation is in effect. Where this boot alone shows
// whether it reaches the registry, that is asked before.
func (c *Cycle) settle(ctx context.Context, e inEffect) error {
	now, err := c.Owner.Read()
	if err != nil {
		return err
	}
	proof, err := e.proof(c, now)
	if err != nil {
		return err
	}
	e.reach = proof.Unproven && !proof.Soaking && !e.rests && c.Soak.MustReach(now.State, e.next) &&
		c.Reached(ctx, c.Effect.Within/6) != nil // else it has shown that
	_, err = c.cycle(ctx, e)
	return err
}

// proof returns the evidence for the generation.
func (e inEffect) proof(c *Cycle, now record.Snapshot) (decide.Proof, error) {
	looked, err := gate.Load(c.Effect.Path(paths.RunGates))
	g, applied := e.next.Generation, now.Boot.Live.Applied
	unproven := (now.Boot.Mode != spec.ModeAttached && g.Pair(now.Boot.Generation) || applied != nil && applied.Same(g)) &&
		now.State.Unproven(g)
	return decide.Proof{Of: g, Unproven: unproven, Keeps: e.keeps, Applied: e.applied,
		Gates:   (e.next.Overlay.Gates != nil || e.reach) && !e.rests,
		Soaking: looked.Of(c.Effect.Scopes.Root, g.Overlay), Health: string(e.result.Health)}, err
}

func (e inEffect) facts(c *Cycle, now record.Snapshot, f *decide.Facts) (err error) {
	f.Event, f.Runs = decide.Effect, &e.next.Generation
	f.Proof, err = e.proof(c, now)
	return err
}

func (e inEffect) act(ctx context.Context, c *Cycle, now record.Snapshot, step decide.Step) (event, *spec.Status, error) {
	var err error
	switch step.Act {
	case decide.None:
	case decide.Renumber:
		if a := now.Boot.Live.Applied; a == nil || !a.Same(e.next.Generation) {
			err = c.Owner.Note(func(l *record.Live) { l.Applied = &e.next.Generation })
		}
	case decide.EndDeadline:
		err = c.Effect.EndDeadline()
	case decide.Prove:
		err = c.promote(e.next.Generation, step)
	case decide.Soak:
		err = c.Soak.BeginGates(ctx, step, e.next.Generation, e.reach)
	default:
		return noAct(step)
	}
	return nil, nil, err
}

// goBack undoes a change that did not pass its gates. That it was rejected is on disk before
// anything is done, so that a cut at any point ends with what ran before. What was
// rejected is not tried again until an operator says so. Where the disk does not take that, it
// reports that it is to be decided again: over which ways back it lasts is another matter.
func (c *Cycle) goBack(ctx context.Context, e *judged, step decide.Step) (next event, st *spec.Status, err error) {
	failed, good, why := e.of.Found.Generation, e.good, e.verdict.Why
	kept := c.Effect.Folder.Unsaved() == nil
	err = c.Owner.Commit(record.Change{Urgent: record.Verdict, State: func(s *state.State) {
		if e.cutOff() {
			s.Doubt(failed)
		}
		s.GoBack(failed, good.Generation, why, time.Now(), c.Effect.Root.LayersHere(s)...)
	}})
	if err != nil {
		return nil, nil, err
	}
	way := c.Destination.WayBack(ctx, step.Act == decide.BackLive)
	if kept && c.Effect.Folder.Unsaved() != nil {
		return e, nil, e.judge(c)
	}
	c.Log.Record("gate-failed", events.With("generation", failed.Generation), events.With("overlay", failed.Overlay),
		events.With("back", good.Generation.Generation), events.With("by-way-of", way), events.With("why", why),
		events.Transition(step.Name))
	c.Log.Note(failed, nil, spec.Event{Event: spec.EventGateFailed, Transition: step.Name, Why: why,
		Did:     fmt.Sprintf("goes back to %s (%s), and does not try it again", c.Destination.NameBeside(good.Generation, failed), way),
		Console: events.Console(events.Kmsg)})
	if err := c.Owner.SetSync(spec.SyncBehind, destination.RejectedText(failed, why)); err != nil {
		return nil, nil, err
	}
	if step.Act == decide.BackLive {
		return last(c.backLive(ctx, good, failed, why))
	}
	if err := c.Owner.Note(func(l *record.Live) { l.Stuck = "" }); err != nil {
		return nil, nil, err
	}
	class, reason, err := c.Destination.Reboot(ctx)
	c.Log.Say("%s did not pass its gates: %s; going back to %s by a %s: %s", c.Destination.NameBeside(failed, good.Generation), why,
		c.Destination.NameBeside(good.Generation, failed), class, reason)
	e.wait = again
	return nil, nil, err
}

// backLive puts in effect again what ran before.
func (c *Cycle) backLive(ctx context.Context, good *track.Found, failed state.Generation, why string) (*spec.Status, error) {
	if err := c.Owner.Note(func(l *record.Live) { l.Applied, l.Stuck = &good.Generation, "" }); err != nil {
		return nil, err
	}
	if err := durable.Remove(c.Effect.Path(paths.RunGates)); err != nil {
		return nil, err
	}
	c.Effect.Services.Bring(ctx, &good.Overlay)
	result, err := c.Effect.PutBack(context.WithoutCancel(ctx), good, failed)
	if err != nil {
		return nil, err
	}
	c.Effect.Services.Note(&good.Overlay)
	c.Log.RecordChanges(result, good.Generation.Generation, fmt.Sprintf("generation %d did not pass its gates", failed.Generation))
	c.Log.Say("generation %d did not pass its gates: %s; generation %d is in effect again", failed.Generation, why, good.Generation.Generation)
	if err := errors.Join(c.Effect.Retire(ctx, result), c.Effect.EndDeadline()); err != nil {
		return nil, err
	}
	return c.Look.Report(good, result)
}

// remainBroken leaves in effect what failed: there is nothing better. It is looked at from the
// start, and counts as good when it holds after all.
func (c *Cycle) remainBroken(ctx context.Context, e *judged, step decide.Step) (*spec.Status, error) {
	j, why := e.of, e.verdict.Why
	if c.Owner.Boot().Live.Stuck != why {
		c.Log.Record("gate-failed", events.With("generation", j.Found.Generation.Generation), events.With("by-way-of", "none"),
			events.With("why", why), events.Transition(step.Name))
		c.Log.Note(j.Found.Generation, nil, spec.Event{Event: spec.EventGateFailed, Transition: step.Name, Why: why,
			Did: "goes on with it: there is nothing better", Console: events.Console(events.Kmsg)})
		if err := c.Owner.Note(func(l *record.Live) { l.Stuck = why }); err != nil {
			return nil, err
		}
	}
	looked := j.Record.Checks
	j.Record.Checks = map[string]gate.Progress{}
	for name, p := range looked {
		j.Record.Checks[name] = gate.Progress{Looked: p.Looked, Why: p.Why}
	}
	if err := j.Record.Save(c.Effect.Path(paths.RunGates)); err != nil {
		return nil, err
	}
	e.wait = c.Soak.NextLook(j)
	return c.Look.Status(ctx)
}

// promote makes a generation that is in effect the current one.
func (c *Cycle) promote(g state.Generation, step decide.Step) error {
	fields := []events.Field{events.With("generation", g.Generation), events.With("epoch", g.Epoch), events.With("overlay", g.Overlay),
		events.With("why", step.Why), events.Transition(step.Name)}
	if g.IsAhead() {
		fields = append(fields, events.With("on", g.Layer), events.With("waits", g.Waits))
	}
	c.Log.Record("promoted", fields...)
	var now *state.State
	err := c.Owner.Commit(record.Change{State: func(s *state.State) {
		g.Unread = c.Soak.Unread(s, g)
		s.Prove(g, c.Effect.Root.LayersHere(s)...)
		now = s
	}})
	if err != nil {
		return err
	}
	c.Destination.Tidy(now)
	return c.Soak.EndGates()
}
