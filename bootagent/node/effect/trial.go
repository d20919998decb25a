// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/node/stacked"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// BeginTrial saves that a change is on trial, before anything of it is made, where that was decided;
// it is nil otherwise. kept is how that is set which can cut the node off.
func (ef *Effect) BeginTrial(next *track.Found, kept spec.Items, step decide.Step) (*state.Trial, error) {
	if err := rules.Confirm(next.Overlay.Confirm); err != nil {
		return nil, fmt.Errorf("generation %d is not begun: %w", next.Generation.Generation, err)
	}
	trial := &state.Trial{Generation: next.Generation, Boot: ef.Scopes.Kernel, Since: time.Now().Unix(), Kept: kept}
	switch step.Act {
	case decide.TryForOperator:
		trial.Confirm, trial.Within = state.ByOperator, next.Overlay.Confirm.Within
	case decide.TryForReach:
		trial.Confirm, trial.Within = state.ByReach, int64(ef.Within/time.Second)
	default:
		return nil, nil
	}
	if err := ef.Owner.Commit(record.Change{State: func(s *state.State) { s.Trial = trial }}); err != nil {
		return nil, fmt.Errorf("a change that may have to be undone is not begun: %w", err)
	}
	ef.Log.Record("trial", events.With("generation", next.Generation.Generation), events.With("confirm", trial.Confirm),
		events.With("why", step.Why), events.Transition(step.Name))
	return trial, nil
}

// Change changes the running root to a generation, all of it or nothing; before is nil where nothing
// runs. forget has the state say so where an agent has to be ended that does not end it.
func (ef *Effect) Change(ctx context.Context, before, next *track.Found,
	forget func(s *state.State, why string)) (result items.Result, err error) {
	making, made := ef.InTime(ctx, before, next, forget)
	if before == nil {
		result = made(items.Reconcile(making, ef.Items(next), ef.Journal))
	} else if result = made(items.Transact(making, ef.Items(next), ef.Items(before), ef.Journal, ef.Guard(next))); result.Err != nil {
		return result, nil
	}
	return result, ef.MoveCorrections(before, next, result)
}

// PutTrialBack takes the change on trial back and then says so: cut in between, it is undone
// once more. doubt is for one with which the registry was not reached.
//
// The node goes on with what it knows to be good. Where that is nothing, or needs
// another root, it goes on with the generation, but with what can cut it off as it was.
func (ef *Effect) PutTrialBack(ctx context.Context, s *state.State, reason string, doubt bool, step decide.Step) error {
	if err := ef.Folder.MakeRoom(); err != nil { // for the journal of what is taken back
		ef.Log.Say("%v", err)
	}
	tried := s.Trial
	if tried.Boot != ef.Scopes.Kernel { // the originals that were taken over ended with its kernel
		if err := ef.TakeOver(); err != nil {
			return err
		}
	}
	afresh := tried.Early && step.Act == decide.Forget // this root goes on with what it came up with
	back, err := ef.back(s, afresh)
	if err != nil {
		return fmt.Errorf("undo generation %d: %w", tried.Generation.Generation, err)
	}
	result, err := ef.PutBack(context.WithoutCancel(ctx), back, tried.Generation)
	if err != nil {
		return err
	}
	why := fmt.Sprintf("generation %d is undone", tried.Generation.Generation)
	ef.Log.RecordChanges(result, back.Generation.Generation, why)
	if result.Err != nil {
		ef.Log.Say("%s: %v", why, result.Err) // it drifts, and the next look mends it
	}
	if step.Act == decide.Withhold {
		err := ef.Owner.Commit(record.Change{Boot: func(b *record.Boot) {
			b.Live.Without = &record.Without{Overlay: tried.Generation.Overlay, Generation: tried.Generation.Generation,
				Reason: reason, Kept: tried.Kept}
			stacked.SetGeneration(b, tried.Generation)
		}})
		if err != nil {
			return err
		}
	}
	if to := ef.WayBack(s); to != nil && !afresh {
		if err := ef.GoTo(*to); err != nil {
			return err
		}
	}
	err = ef.Owner.Commit(record.Change{Urgent: record.Verdict, State: func(s *state.State) {
		if step.Act == decide.Forget || step.Act == decide.Withhold && s.Current == nil {
			s.Trial = nil // there is nothing else to run, or nothing that it could be refused for
			return
		}
		if doubt && step.Act == decide.Restore {
			s.Doubt(tried.Generation)
		}
		s.Undo(reason)
	}})
	if err != nil {
		return err
	}
	if reason != "" {
		ef.Log.Note(tried.Generation, nil, spec.Event{Event: spec.EventUndone, Transition: step.Name, Why: reason,
			Did: fmt.Sprintf("undid it; generation %d is in effect", back.Generation.Generation)})
	}
	ef.Log.Record("undone", events.With("generation", tried.Generation.Generation), events.With("stays", back.Generation.Generation),
		events.With("why", reason), events.Transition(step.Name))
	if s.Current == nil {
		return ef.EndDeadline() // another boot would end the same
	}
	return nil
}

// WayBack returns what this root can go back to from the change on trial: what proved
// itself, or else what it was at before; nil where there is neither.
func (ef *Effect) WayBack(s *state.State) *state.Generation {
	if best := s.Best(); best != nil && ef.Root.RunsHere(best.Layer) {
		return best
	}
	if a := ef.Owner.Boot().Live.Applied; a != nil && !s.Trial.Of(*a) && ef.Root.RunsHere(a.Layer) {
		return a
	}
	return nil
}

// Kept is how that is set which can cut the node off, where there is nothing good to go back to:
// was set, where some of it was set on trial before services started.
func (ef *Effect) Kept(s *state.State, g state.Generation) (kept spec.Items) {
	if t := s.Trial; t.Begins() {
		return t.Kept
	}
	if ef.WayBack(s) == nil {
		kept = kept.Keeping(items.Kept(ef.Items(&track.Found{Generation: g})))
	}
	return kept
}

// GoTo notes what this root runs now, in place of what it was changed to or came up with.
// What was judged is not in effect any more.
func (ef *Effect) GoTo(g state.Generation) error {
	boot := ef.Owner.Boot()
	cameWith, applied := g.Pair(boot.Generation), boot.Live.Applied
	if applied == nil && cameWith || applied != nil && applied.Same(g) && applied.Pair(g) {
		return nil
	}
	if err := durable.Remove(ef.Path(paths.RunGates)); err != nil {
		return err
	}
	return ef.Owner.Note(func(l *record.Live) {
		if l.Applied, l.Stuck = &g, ""; cameWith {
			l.Applied = nil
		}
	})
}

// PutBack makes the node as back says, where the tried generation made it otherwise: the
// rest is drift, as it was before.
func (ef *Effect) PutBack(ctx context.Context, back *track.Found, tried state.Generation) (items.Result, error) {
	from, err := ef.Tracker.Recall(&tried)
	limit := ef.MakingTime(&back.Overlay)
	ctx, watch := ef.watch(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer watch.after(limit, func() { cancel(context.DeadlineExceeded) })()
	bounded := func(run func(context.Context) items.Result) items.Result {
		ctx, stop := ef.endAfter(ctx, watch, fmt.Sprintf("putting generation %d back", back.Generation.Generation), back, 2*limit)
		defer stop()
		return run(ctx)
	}
	if err != nil { // nobody knows any more what it changed
		result := bounded(func(ctx context.Context) items.Result {
			return items.Reconcile(ctx, ef.Items(back), ef.Journal)
		})
		return result, ef.Counted(ef.Corrections().Begin(back.Generation.Overlay))
	}
	guard := ef.Guard(back)
	result := bounded(func(ctx context.Context) items.Result {
		return items.Undo(ctx, ef.Items(back), ef.Items(from), ef.Journal, guard)
	})
	return result, ef.MoveCorrections(from, back, result)
}

// back returns what this root goes back to, or else what is on trial, but with what can cut the
// node off as it was. So it is for a root that comes up afresh, of what was set before services
// started: it has read the rest.
func (ef *Effect) back(s *state.State, afresh bool) (*track.Found, error) {
	kept := s.Trial.Kept
	if to := ef.WayBack(s); to != nil {
		good, err := ef.Tracker.Recall(to)
		if err != nil || !afresh {
			return good, err
		}
		kept = good.Overlay.Items
	}
	found, err := ef.Tracker.Recall(&s.Trial.Generation)
	switch {
	case err != nil:
	case afresh:
		found.Overlay.Items = found.Overlay.Items.KeepingEarly(kept)
	default:
		found.Overlay.Items = found.Overlay.Items.Keeping(kept)
	}
	return found, err
}

// Passes reports whether a change failed for what is not its own and may go away: what it takes
// away is in use, or the disk takes no writes, as one that is full.
func Passes(err error) bool { return errors.Is(err, unix.EBUSY) || track.OfDisk(err) }
