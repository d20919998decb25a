// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/node/early"
	"github.com/caisson-os/caisson/bootagent/node/operate"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/spec"
)

// await leaves a change to its operator.
func (c *Cycle) await(ctx context.Context, next *track.Found, result items.Result) (*spec.Status, error) {
	c.Log.RecordChanges(result, next.Generation.Generation, fmt.Sprint("generation ", next.Generation.Generation))
	if err := c.Effect.Retire(ctx, result); err != nil {
		return nil, err
	}
	within := next.Overlay.Confirm.Within
	err := c.Owner.Commit(record.Change{Urgent: record.Word, State: func(s *state.State) {
		s.Trial.Ends = int64((c.Effect.Clock.Up()+time.Second-1)/time.Second) + within
	}})
	if err != nil {
		return nil, errors.Join(err, c.unkept(ctx, err))
	}
	c.Log.Say("generation %d is undone unless 'caisson-agent confirm' is called within %d s", next.Generation.Generation, within)
	if err := c.Owner.Note(func(l *state.Live) { l.TakenBack = nil }); err != nil {
		return nil, err
	}
	return c.Look.Report(next, result)
}

// undoForGood undoes a change that cut the node off.
func (c *Cycle) undoForGood(ctx context.Context, t probed, why string) (*spec.Status, error) {
	if _, err := c.cycle(ctx, undone{why: why, doubt: true}); err != nil {
		return nil, err
	}
	failed := fmt.Errorf("generation %d was undone: after it %w", t.next.Generation.Generation, t.fault)
	if err := c.Owner.SetSync(spec.SyncBehind, fmt.Sprintf("generation %d was undone: %s", t.next.Generation.Generation, why)); err != nil {
		return nil, errors.Join(failed, err)
	}
	found, err := c.Effect.Running()
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	status, err := c.Look.Report(found, c.Effect.Look(ctx, found))
	return status, errors.Join(failed, err)
}

// undo takes the change on trial back. Without a reason, the generation is not held
// against itself.
func (c *Cycle) undo(ctx context.Context, reason string) error {
	_, err := c.cycle(ctx, undone{why: reason})
	return err
}

// undone is a change on trial that is to be undone.
type undone struct {
	why   string // "" where it is not the change's fault
	doubt bool   // the registry was not reached
}

func (e undone) facts(c *Cycle, now record.Snapshot, f *decide.Facts) error {
	f.Event, f.Runs = decide.Undo, c.Effect.Runs(now.State)
	f.Undo = decide.Fault{Reason: e.why, WayBack: c.Effect.WayBack(now.State) != nil}
	return nil
}

func (e undone) act(ctx context.Context, c *Cycle, now record.Snapshot, step decide.Step) (event, *spec.Status, error) {
	switch step.Act {
	case decide.Forget, decide.Withhold, decide.Restore:
		return nil, nil, c.Effect.PutTrialBack(ctx, now.State, e.why, e.doubt, step)
	}
	return noAct(step)
}

// starting is a root that comes up, on which no service has started.
type starting struct{ plan early.Plan }

func (e starting) facts(c *Cycle, now record.Snapshot, f *decide.Facts) error {
	f.Event, f.Runs = decide.Early, c.Effect.Runs(now.State)
	f.Prior = e.plan.Prior(now)
	return nil
}

func (e starting) act(ctx context.Context, c *Cycle, _ record.Snapshot, step decide.Step) (event, *spec.Status, error) {
	switch step.Act {
	case decide.None:
		return nil, nil, nil
	case decide.LeaveOut, decide.Set, decide.SetHarmless, decide.SetOnTrial:
		return nil, nil, c.Starts.Set(ctx, e.plan, step)
	}
	return noAct(step)
}

// ReturnTo changes the node to the generation that choose returns. The decision is saved
// first: cut in between, the next look goes on with it. A change that fails is taken back,
// and the decision with it.
func (c *Cycle) ReturnTo(ctx context.Context, h spec.Hold, choose operate.Choice) (*spec.Status, error) {
	if c.Effect.Tracker == nil {
		return nil, c.Effect.Unbound
	}
	before, err := c.Effect.Running()
	if err != nil {
		return nil, err
	}
	s, err := c.Owner.State()
	if err != nil {
		return nil, err
	}
	to := choose(s.Kept(), before.Generation)
	if to == nil {
		return nil, operate.NotKept(s.Kept())
	}
	next, err := c.Effect.Tracker.Return(to)
	if err != nil {
		return nil, err
	}
	if s.Trial.Pending() {
		s.Undo("somebody went back to generation " + fmt.Sprint(to.Generation))
	}
	was := s.Clone()
	s.Return(*to, c.Effect.Root.LayersHere(s)...)
	s.Keep(h)
	live, why := c.Owner.Boot().Mode == spec.ModeAttached, ""
	if !live {
		live, why = c.Destination.Extent(before, next)
	}
	save := record.Change{State: func(to *state.State) { *to = *s }, Urgent: record.Verdict}
	if !live { // a boot would forget what is in memory only
		save.Urgent = record.Word
	}
	if err := c.Owner.Commit(save); err != nil {
		return nil, err
	}
	c.Holds.RecordHold(h.Kind, h, to.Generation)
	if !live {
		if err := c.Look.Wait(next, "a reboot: "+why); err != nil {
			return nil, err
		}
		return c.Look.Status(ctx)
	}
	result, err := c.Effect.Change(ctx, before, next, func(s *state.State, _ string) { *s = *was })
	switch {
	case err != nil:
		return nil, err
	case result.Err != nil:
		st, err := c.cycle(ctx, made{try: try{before: before, next: next}, result: result, returns: true})
		return st, errors.Join(err, c.Owner.Commit(record.Change{State: func(s *state.State) { *s = *was }, Urgent: record.Verdict}))
	}
	c.Log.RecordChanges(result, to.Generation, h.Kind)
	noted := c.Owner.Note(func(l *state.Live) { l.TakenBack, l.Without = nil, nil })
	if err := errors.Join(noted, c.Owner.SetSync(spec.SyncBehind, state.SayHold(&h)), c.Effect.Root.Arrive(next.Generation)); err != nil {
		return nil, err
	}
	return c.Look.Report(next, result)
}
