// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/node/early"
	"github.com/caisson-os/caisson/bootagent/node/effect"
	"github.com/caisson-os/caisson/bootagent/node/operate"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec"
)

// try is a change that is to be made.
type try struct {
	before    *track.Found // what runs, nil where nothing ran on this root
	next      *track.Found
	comesUp   bool       // this root comes up with next
	unreached error      // of that: why the registry is not reached before it
	kept      spec.Items // how that is set which can cut the node off, where there is no way back
}

// tries returns the change that is to be made. The registry is asked before a root comes up with
// what can cut it off.
func (c *Cycle) tries(ctx context.Context, before, next *track.Found, comesUp bool) (event, error) {
	e := try{before: before, next: next, comesUp: comesUp}
	if comesUp && len(spec.CutsOff(&spec.Items{}, &next.Overlay.Items)) > 0 {
		if e.unreached = c.Reached(ctx, c.Effect.Within/6); e.unreached != nil {
			return e, nil
		}
	}
	now, err := c.Owner.Read()
	if err == nil {
		e.kept = c.Effect.Kept(now.State, next.Generation)
	}
	return e, err
}

func (e try) facts(_ *Cycle, now record.Snapshot, f *decide.Facts) error {
	f.Event, f.Runs = decide.Try, generationOf(e.before)
	if e.comesUp {
		f.Runs = &e.next.Generation
	}
	if e.unreached != nil {
		f.Try.Unreached = e.unreached.Error()
		return nil
	}
	from := cmp.Or(e.before, &track.Found{Generation: e.next.Generation, Overlay: spec.Overlay{Items: e.kept}})
	f.Try.Cuts = strings.Join(spec.CutsOff(&from.Overlay.Items, &e.next.Overlay.Items), ", ")
	f.Try.Asked = e.next.Overlay.Confirm != nil && now.State.Current != nil && len(effect.ChangedKinds(from, e.next)) > 0
	return nil
}

// act makes a change of the running root, or of one that has come up, all of it or nothing. What
// can cut the node off is on trial before anything of it is made.
func (e try) act(ctx context.Context, c *Cycle, _ record.Snapshot, step decide.Step) (event, *spec.Status, error) {
	switch step.Act {
	case decide.ComeUpWithout:
		err := c.undo(ctx, "")
		next, lookErr := c.looks()
		return then(next, errors.Join(err, lookErr))
	case decide.ApplyUntested:
		c.Log.Record("untested", events.With("generation", e.next.Generation.Generation), events.With("why", step.Why),
			events.Transition(step.Name))
		c.Log.Say("what could cut this node off is applied untested: %s", step.Why)
		return last(c.enforce(ctx, e.next))
	case decide.TryForOperator, decide.TryForReach, decide.MakeWithoutTrial:
	default:
		return noAct(step)
	}
	m := made{try: e}
	trial, err := c.Effect.BeginTrial(e.next, e.kept, step)
	switch {
	case err != nil:
	case e.comesUp && trial == nil:
		return last(c.enforce(ctx, e.next))
	case e.comesUp:
		m.result = c.Effect.LookAt(ctx, e.next, func(ctx context.Context) items.Result {
			return items.Reconcile(ctx, c.Effect.Items(e.next), c.Effect.Journal)
		})
		err = c.Effect.Counted(c.Effect.Corrections().Begin(e.next.Generation.Overlay))
	default:
		m.result, err = c.change(ctx, e.before, e.next)
	}
	if trial != nil {
		m.confirm = trial.Confirm
	}
	return then(m, err)
}

// made is a change that was made, or failed.
type made struct {
	try
	result  items.Result
	confirm state.Confirm // by whom, "" for nobody
	returns bool          // an operator goes back to it, which waits for nothing
}

func (e made) facts(_ *Cycle, _ record.Snapshot, f *decide.Facts) error {
	f.Event, f.Runs = decide.Made, generationOf(e.before)
	f.Result = decide.Result{Failed: e.before != nil && e.result.Err != nil, RolledBack: e.result.RolledBack, Trial: e.confirm,
		OtherLayer: !e.returns && e.before != nil && e.before.Generation.Layer != e.next.Generation.Layer}
	if f.Result.Failed {
		f.Result.Why, f.Result.Busy = e.result.Err.Error(), effect.Passes(e.result.Err) && !e.next.Generation.IsAhead()
	}
	return nil
}

func (e made) act(ctx context.Context, c *Cycle, _ record.Snapshot, step decide.Step) (event, *spec.Status, error) {
	switch step.Act {
	case decide.DeferToBoot:
		// Something else of it could not even be begun, as a file of a user who is not there before it.
		why := &record.ForBoot{Overlay: e.next.Generation.Overlay, Reason: e.result.Err.Error()}
		if err := errors.Join(c.Owner.Note(func(l *record.Live) { l.ForBoot = why }), c.Owner.EndTrial(),
			c.Look.Wait(e.next, "a reboot: "+e.result.Err.Error())); err != nil {
			return nil, nil, err
		}
		return last(c.Look.Status(ctx))
	case decide.RetrySoon, decide.RetryInAWhile, decide.RejectChange:
		return last(c.takenBack(ctx, e, step))
	case decide.AwaitOperator:
		return last(c.await(ctx, e.next, e.result))
	case decide.Probe:
		return then(probed{e, c.Reached(ctx, c.Effect.Within)}, nil)
	case decide.Settle:
		return last(c.moved(ctx, e.next, e.result))
	}
	return noAct(step)
}

// probed is the way to the registry, tried after a change.
type probed struct {
	made
	fault error // why it was not reached
}

func (e probed) facts(_ *Cycle, now record.Snapshot, f *decide.Facts) error {
	f.Event, f.Runs = decide.Probed, generationOf(e.before)
	reach(e.fault, now, f)
	return nil
}

func (e probed) act(ctx context.Context, c *Cycle, _ record.Snapshot, step decide.Step) (event, *spec.Status, error) {
	switch step.Act {
	case decide.Settle:
		return last(c.moved(ctx, e.next, e.result))
	case decide.UndoAndRetry:
		return then(nil, errors.Join(ctx.Err(), c.undo(ctx, "")))
	case decide.UndoForGood:
		st, err := c.undoForGood(ctx, e, step.Why)
		if e.comesUp && st != nil { // the node goes on, and its status says how
			c.Log.Say("%v", err)
			err = nil
		}
		return nil, st, err
	}
	return noAct(step)
}

// change applies a generation to the running root; before is nil where nothing runs.
func (c *Cycle) change(ctx context.Context, before, next *track.Found) (result items.Result, err error) {
	if err := c.Owner.TryAgain(next.Generation); err != nil {
		return result, err
	}
	result, err = c.Effect.Change(ctx, before, next, func(s *state.State, why string) { s.Reject(next.Generation, why, time.Now()) })
	if err != nil || before != nil && result.Err != nil {
		return result, err
	}
	if result.Health == spec.HealthQuarantined { // that may have ended with the change
		seen := c.Effect.Look(ctx, next)
		result.Items, result.Drift, result.Health = seen.Items, seen.Drift, seen.Health
	}
	if before != nil {
		c.Effect.Root.SayLeft(before, next, result)
	}
	return result, nil
}

// unkept undoes a change on trial of which it could not be noted that it is in effect. A disk
// that takes no writes is not held against it.
func (c *Cycle) unkept(ctx context.Context, why error) error {
	s, err := c.Owner.State()
	if err != nil || !s.Trial.Pending() {
		return err
	}
	tried, reason := s.Trial.Generation, "it could not be kept: "+why.Error()
	if !effect.Passes(why) {
		return c.undo(ctx, reason)
	}
	return errors.Join(c.undo(ctx, ""), c.Owner.Postpone(tried, reason))
}

// moved notes that a generation is in effect.
func (c *Cycle) moved(ctx context.Context, next *track.Found, result items.Result) (*spec.Status, error) {
	c.Log.RecordChanges(result, next.Generation.Generation, fmt.Sprint("generation ", next.Generation.Generation))
	c.Effect.Services.Note(&next.Overlay)
	fault.Say(c.Log.Say, c.Owner.Note(func(l *record.Live) { l.TakenBack, l.Without = nil, nil })) // it is written again with what follows
	if err := c.Effect.Retire(ctx, result); err != nil {
		return nil, err
	}
	if err := c.settle(ctx, inEffect{next: next, result: result, applied: true}); err != nil {
		return nil, errors.Join(err, c.unkept(ctx, err))
	}
	return c.Look.Report(next, result)
}

// takenBack notes that the node goes on with what ran before, since the change failed, or
// since this process ends, which says nothing about it.
func (c *Cycle) takenBack(ctx context.Context, e made, step decide.Step) (*spec.Status, error) {
	before, next, result := e.before, e.next, e.result
	did := "changed nothing, and tries it again at each sync"
	stays := fmt.Sprintf("; generation %d is in effect", before.Generation.Generation)
	switch {
	case e.returns: // the decision to go there goes with it
		did = "took it back, and goes on as before" + stays
	case step.Act == decide.RejectChange:
		did = "took it back, and does not try it again" + stays
	case step.Act == decide.RetryInAWhile:
		did = "took it back, and tries it again in an hour and at a boot" + stays
	}
	err := c.Owner.Commit(record.Change{Urgent: record.Verdict, State: func(s *state.State) {
		switch step.Act {
		case decide.RejectChange:
			s.Reject(next.Generation, result.Err.Error(), time.Now())
		case decide.RetryInAWhile:
			s.Postpone(next.Generation, result.Err.Error(), time.Now())
		}
		s.Trial = nil
	}})
	if err != nil {
		return nil, errors.Join(result.Err, err)
	}
	failed := fmt.Errorf("generation %d was not applied: %w", next.Generation.Generation, result.Err)
	c.Log.Record("taken-back", events.With("generation", next.Generation.Generation),
		events.With("stays", before.Generation.Generation), events.With("why", step.Why), events.Transition(step.Name))
	if step.Name != "cut-short" { // which is not a failure
		c.Log.Note(next.Generation, result.Err, spec.Event{Event: spec.EventTakenBack, Transition: step.Name, Did: did,
			Console: events.Console(events.Kmsg)})
		err = c.Owner.Note(func(l *record.Live) {
			l.TakenBack = &record.TakenBack{Generation: next.Generation.Generation, Reason: step.Why}
		})
	}
	if err := errors.Join(err, c.Owner.SetSync(spec.SyncBehind, step.Why)); err != nil {
		return nil, errors.Join(failed, err)
	}
	if !result.RolledBack { // it looked for next, and before runs
		seen := c.Effect.Look(ctx, before)
		result.Items, result.Drift, result.Health = seen.Items, seen.Drift, seen.Health
	}
	status, err := c.Look.Report(before, result)
	return status, errors.Join(failed, err)
}

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
	if err := c.Owner.Note(func(l *record.Live) { l.TakenBack = nil }); err != nil {
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
	noted := c.Owner.Note(func(l *record.Live) { l.TakenBack, l.Without = nil, nil })
	if err := errors.Join(noted, c.Owner.SetSync(spec.SyncBehind, state.SayHold(&h)), c.Effect.Root.Arrive(next.Generation)); err != nil {
		return nil, err
	}
	return c.Look.Report(next, result)
}
