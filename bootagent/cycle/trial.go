// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// begin saves that a change is on trial, before anything of it is made, where that was
// decided.
func (c *Cycle) begin(t *turn, step decide.Step) (*state.Trial, error) {
	next := t.next
	if err := rules.Confirm(next.Overlay.Confirm); err != nil {
		return nil, fmt.Errorf("generation %d is not begun: %w", next.Generation.Generation, err)
	}
	trial := &state.Trial{Generation: next.Generation, Boot: c.Scopes.Kernel, Since: time.Now().Unix(), Kept: t.kept}
	switch step.Act {
	case decide.TryForOperator:
		trial.Confirm, trial.Within = state.ByOperator, next.Overlay.Confirm.Within
	case decide.TryForReach:
		trial.Confirm, trial.Within = state.ByReach, int64(c.Within()/time.Second)
	default:
		return nil, nil
	}
	s, err := c.Folder.Load()
	if err != nil {
		return nil, err
	}
	s.Trial = trial
	if err := c.Folder.Save(s); err != nil {
		return nil, fmt.Errorf("a change that may have to be undone is not begun: %w", err)
	}
	c.RecordStep("trial", events.With("generation", next.Generation.Generation), events.With("confirm", trial.Confirm), events.With("why", step.Why))
	return trial, nil
}

// await leaves a change to its operator.
func (c *Cycle) await(ctx context.Context, next *track.Found, result items.Result) (*spec.Status, error) {
	c.RecordChanges(result, next.Generation.Generation, fmt.Sprint("generation ", next.Generation.Generation))
	if err := c.effect.Retire(ctx, result); err != nil {
		return nil, err
	}
	within := next.Overlay.Confirm.Within
	err := c.Kept.Commit(record.Change{Urgent: record.Word, State: func(s *state.State) {
		s.Trial.Ends = int64((c.Up()+time.Second-1)/time.Second) + within
	}})
	if err != nil {
		return nil, errors.Join(err, c.unkept(ctx, err))
	}
	c.Say("generation %d is undone unless 'caisson-agent confirm' is called within %d s", next.Generation.Generation, within)
	if err := c.Kept.Commit(record.Change{Boot: func(b *state.Boot) { b.Live.TakenBack = nil }}); err != nil {
		return nil, err
	}
	return c.look.Report(next, result)
}

// undoForGood undoes a change that cut the node off.
func (c *Cycle) undoForGood(ctx context.Context, t *turn, why string) (*spec.Status, error) {
	if err := c.cycle(ctx, &turn{event: decide.Undo, why: why, doubt: true}); err != nil {
		return nil, err
	}
	c.SetSync(spec.SyncBehind, fmt.Sprintf("generation %d was undone: %s", t.next.Generation.Generation, why))
	failed := fmt.Errorf("generation %d was undone: after it %w", t.next.Generation.Generation, t.fault)
	if err := c.Remember(); err != nil {
		return nil, errors.Join(failed, err)
	}
	found, err := c.effect.Running()
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	status, err := c.look.Report(found, c.effect.Look(ctx, found))
	return status, errors.Join(failed, err)
}

// undo takes the change on trial back. Without a reason, the generation is not held
// against itself.
func (c *Cycle) undo(ctx context.Context, reason string) error {
	return c.cycle(ctx, &turn{event: decide.Undo, why: reason})
}

// putTrialBack takes the change on trial back and then says so: cut in between, it is undone
// once more.
//
// The node goes on with what it knows to be good. Where that is nothing, or needs
// another root, it goes on with the generation, but with what can cut it off as it was.
func (c *Cycle) putTrialBack(ctx context.Context, t *turn, step decide.Step) error {
	reason := t.why
	s, err := c.Folder.Load()
	if err != nil {
		return err
	}
	if err := c.Folder.MakeRoom(); err != nil { // for the journal of what is taken back
		c.Say("%v", err)
	}
	tried := s.Trial
	if tried.Boot != c.Scopes.Kernel { // the originals that were taken over ended with its kernel
		if err := c.effect.TakeOver(); err != nil {
			return err
		}
	}
	back, err := c.effect.Back(s)
	if err != nil {
		return fmt.Errorf("undo generation %d: %w", tried.Generation.Generation, err)
	}
	result, err := c.effect.PutBack(context.WithoutCancel(ctx), back, tried.Generation)
	if err != nil {
		return err
	}
	why := fmt.Sprintf("generation %d is undone", tried.Generation.Generation)
	c.RecordChanges(result, back.Generation.Generation, why)
	if result.Err != nil {
		c.Say("%s: %v", why, result.Err) // it drifts, and the next look mends it
	}
	if step.Act == decide.Withhold {
		c.Boot.Live.Without = &state.Without{Overlay: tried.Generation.Overlay, Generation: tried.Generation.Generation, Reason: reason, Kept: tried.Kept}
		c.root.SetGeneration(tried.Generation)
		if err := c.Remember(); err != nil {
			return err
		}
	}
	if to := c.effect.WayBack(s); to != nil {
		if err := c.effect.GoTo(*to); err != nil {
			return err
		}
	}
	if step.Act == decide.Forget || step.Act == decide.Withhold && s.Current == nil {
		s.Trial = nil // there is nothing else to run, or nothing that it could be refused for
	} else {
		if t.doubt && step.Act == decide.Restore {
			s.Doubt(tried.Generation)
		}
		s.Undo(reason)
	}
	if err := c.Folder.SaveVerdict(s); err != nil {
		return err
	}
	if reason != "" {
		c.Note(tried.Generation, nil, spec.Event{Event: spec.EventUndone, Transition: step.Name, Why: reason, Did: fmt.Sprintf("undid it; generation %d is in effect", back.Generation.Generation)})
	}
	c.RecordStep("undone", events.With("generation", tried.Generation.Generation), events.With("stays", back.Generation.Generation), events.With("why", reason))
	if s.Current == nil {
		return c.EndDeadline() // another boot would end the same
	}
	return nil
}
