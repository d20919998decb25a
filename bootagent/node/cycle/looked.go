// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/spec"
)

// begin comes before all else: what was left unfinished.
type begin struct{}

func (begin) facts(c *Cycle, now record.Snapshot, f *decide.Facts) error {
	s := now.State
	f.Event, f.Runs = decide.Begin, c.Effect.Runs(s)
	f.HoldOver = c.Effect.Tracker != nil && s.Hold != nil && s.Tracking != spec.Following && s.HoldAt(time.Now().Unix()) == nil
	f.Return = c.Effect.Tracker != nil && c.Destination.CanReturn(s)
	f.Doubt = s.Tells(f.Runs)
	return nil
}

func (e begin) act(ctx context.Context, c *Cycle, now record.Snapshot, step decide.Step) (event, *spec.Status, error) {
	switch step.Act {
	case decide.PutBack:
		if err := c.undo(ctx, step.Why); err != nil {
			return nil, nil, err
		}
		// Nobody has just asked the registry: what the node runs is older than what it has accepted.
		why := fmt.Sprintf("generation %d was undone: %s", now.State.Trial.Generation.Generation, step.Why)
		return e, nil, c.Owner.SetSync(spec.SyncBehind, why)
	case decide.Forget:
		return e, nil, c.Owner.EndTrial()
	case decide.Follow:
		return e, nil, c.Holds.Expire()
	case decide.Arrive:
		return e, nil, c.Effect.Root.Arrive(*now.State.Current)
	case decide.Compare:
		return doubted{c.Reached(ctx, c.Effect.Within)}, nil, nil
	case decide.Go:
		return nil, nil, nil
	}
	return noAct(step)
}

// doubted is the way to the registry, tried by what ran before what is doubted.
type doubted struct {
	fault error // why it was not reached
}

func (e doubted) facts(_ *Cycle, now record.Snapshot, f *decide.Facts) error {
	f.Event = decide.Doubted
	reach(e.fault, now, f)
	return nil
}

func (doubted) act(_ context.Context, c *Cycle, _ record.Snapshot, step decide.Step) (event, *spec.Status, error) {
	switch step.Act {
	case decide.None:
		return nil, nil, nil
	case decide.Convict, decide.Absolve:
		return begin{}, nil, c.Soak.Compared(step)
	}
	return noAct(step)
}

// reach says what came of trying the way to the registry.
func reach(fault error, now record.Snapshot, f *decide.Facts) {
	if fault != nil {
		f.Reach = fault.Error()
	}
	f.Outage = now.Boot.Live.Asked == 0 && now.Boot.Sync == spec.SyncUnreachable // which is the loader's word until then
}

// looked is a look at what runs.
type looked struct {
	before *track.Found // nil where nothing runs
}

// looks goes on with what runs.
func (c *Cycle) looks() (event, error) {
	found, err := c.Effect.Found()
	return looked{found}, err
}

func generationOf(found *track.Found) *state.Generation {
	if found == nil {
		return nil
	}
	return &found.Generation
}

func (e looked) facts(c *Cycle, _ record.Snapshot, f *decide.Facts) (err error) {
	f.Event, f.Runs = decide.Look, generationOf(e.before)
	f.Elsewhere = f.Best != nil && !c.Effect.Root.RunsHere(f.Best.Layer)
	f.Paused, err = c.Effect.PausedBy(e.before)
	return err
}

func (e looked) act(ctx context.Context, c *Cycle, _ record.Snapshot, step decide.Step) (event, *spec.Status, error) {
	switch step.Act {
	case decide.Stop:
		return nil, nil, track.ErrNothing
	case decide.Watch:
		return last(c.Look.Watch(ctx, e.before, step.Why))
	case decide.Keep:
		if err := c.Effect.Prepare(ctx, e.before); err != nil {
			return nil, nil, err
		}
		return last(c.enforce(ctx, e.before))
	case decide.Return:
		c.Log.Record("returning", events.With("why", step.Why), events.Transition(step.Name))
		c.Log.Note(e.before.Generation, nil, spec.Event{Event: spec.EventLeft, Transition: step.Name, Why: step.Why,
			Did: "starts the machine over into what proved itself"})
		class, why, err := c.Destination.Reboot(ctx)
		c.Log.Say("%s; going back by a %s: %s", step.Why, class, why)
		if err == nil {
			return last(c.Look.Status(ctx))
		}
		return nil, nil, err
	case decide.ComeUp:
		if err := c.Effect.Prepare(ctx, e.before); err != nil {
			return nil, nil, err
		}
		if err := c.Owner.TryAgain(e.before.Generation); err != nil { // it is tried all the same: this root has nothing else
			c.Log.Say("%v", err)
		}
		return then(c.tries(ctx, nil, e.before, true))
	}
	return noAct(step)
}

// answered holds the answer of the registry.
type answered struct {
	before *track.Found // what runs, nil where that is nothing
	next   *track.Found
	fault  error // why nothing was had
}

func (e answered) facts(c *Cycle, now record.Snapshot, f *decide.Facts) (err error) {
	f.Event, f.Runs = decide.Answer, generationOf(e.before)
	if e.fault != nil {
		f.Offer.Failed = true
		return nil
	}
	next := e.next
	o := decide.Offer{Held: next.Held, Unchanged: next.Unchanged, Pauses: next.Overlay.Pause != nil,
		Generation: next.Generation, Attempts: next.Generation.Attempts, Live: true}
	if next.Generation.Pair(now.Boot.Generation) {
		o.Attempts = 0 // the boot that is running now does not count against it
	}
	switch {
	case o.Held || o.Unchanged || f.Attached:
	case e.before == nil:
		o.Here = c.Effect.Root.RunsHere(next.Overlay.Layer)
	default:
		o.Live, o.Why = c.Destination.Extent(e.before, next)
	}
	f.Offer = o
	f.Paused, err = c.Effect.PausedBy(next)
	return err
}

func (e answered) act(ctx context.Context, c *Cycle, _ record.Snapshot, step decide.Step) (event, *spec.Status, error) {
	switch step.Act {
	case decide.PutBack:
		err := c.undo(ctx, step.Why)
		if err == nil {
			e.before, err = c.Effect.Running()
		}
		return e, nil, err
	case decide.Stop:
		return nil, nil, cmp.Or(e.fault, error(track.ErrNothing))
	case decide.Report:
		st, err := c.Look.Status(ctx)
		return nil, st, errors.Join(e.fault, err)
	case decide.Decline:
		if err := c.Owner.SetSync(spec.SyncBehind, destination.RejectedText(e.next.Generation, step.Why)); err != nil {
			return nil, nil, err
		}
		return then(c.looks())
	case decide.NoteNumber:
		if err := c.settle(ctx, inEffect{next: e.next}); err != nil {
			return nil, nil, err
		}
		return then(c.looks())
	case decide.LookNow:
		return then(c.looks())
	case decide.DeferGeneration:
		if err := c.Effect.TakeOver(); err != nil {
			return nil, nil, err
		}
		if err := c.Look.Wait(e.next, step.Why); err != nil {
			return nil, nil, err
		}
		if e.before == nil { // there is no status of nothing
			return nil, nil, fmt.Errorf("nothing that verifies runs here, and generation %d waits for %s", e.next.Generation.Generation, step.Why)
		}
		return last(c.Look.Status(ctx))
	case decide.Rest:
		if err := c.settle(ctx, inEffect{next: e.next, rests: true}); err != nil {
			return nil, nil, err
		}
		if err := c.Owner.Note(func(l *record.Live) { l.TakenBack = nil }); err != nil {
			return nil, nil, err
		}
		return last(c.Look.Watch(ctx, e.next, step.Why))
	case decide.Change:
		if err := c.Effect.Prepare(ctx, e.next); err != nil {
			return nil, nil, err
		}
		return then(c.tries(ctx, e.before, e.next, false))
	}
	return noAct(step)
}
