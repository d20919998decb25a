// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"context"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
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
		trial.Confirm, trial.Within = state.ByReach, int64(ef.Within()/time.Second)
	default:
		return nil, nil
	}
	if err := ef.Owner.Commit(record.Change{State: func(s *state.State) { s.Trial = trial }}); err != nil {
		return nil, fmt.Errorf("a change that may have to be undone is not begun: %w", err)
	}
	ef.RecordStep("trial", events.With("generation", next.Generation.Generation), events.With("confirm", trial.Confirm), events.With("why", step.Why))
	return trial, nil
}

// Change changes the running root to a generation, all of it or nothing; before is nil where nothing
// runs. forget has the state say so where an agent has to be ended that does not end it.
func (ef *Effect) Change(ctx context.Context, before, next *track.Found, forget func(s *state.State, why string)) (result items.Result, err error) {
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
		ef.Say("%v", err)
	}
	tried := s.Trial
	if tried.Boot != ef.Scopes.Kernel { // the originals that were taken over ended with its kernel
		if err := ef.TakeOver(); err != nil {
			return err
		}
	}
	back, err := ef.Back(s)
	if err != nil {
		return fmt.Errorf("undo generation %d: %w", tried.Generation.Generation, err)
	}
	result, err := ef.PutBack(context.WithoutCancel(ctx), back, tried.Generation)
	if err != nil {
		return err
	}
	why := fmt.Sprintf("generation %d is undone", tried.Generation.Generation)
	ef.RecordChanges(result, back.Generation.Generation, why)
	if result.Err != nil {
		ef.Say("%s: %v", why, result.Err) // it drifts, and the next look mends it
	}
	if step.Act == decide.Withhold {
		err := ef.Owner.Commit(record.Change{Boot: func(b *state.Boot) {
			b.Live.Without = &state.Without{Overlay: tried.Generation.Overlay, Generation: tried.Generation.Generation, Reason: reason, Kept: tried.Kept}
			ef.root.SetGeneration(b, tried.Generation)
		}})
		if err != nil {
			return err
		}
	}
	if to := ef.WayBack(s); to != nil {
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
		ef.Note(tried.Generation, nil, spec.Event{Event: spec.EventUndone, Transition: step.Name, Why: reason, Did: fmt.Sprintf("undid it; generation %d is in effect", back.Generation.Generation)})
	}
	ef.RecordStep("undone", events.With("generation", tried.Generation.Generation), events.With("stays", back.Generation.Generation), events.With("why", reason))
	if s.Current == nil {
		return ef.EndDeadline() // another boot would end the same
	}
	return nil
}
