// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/blackbox"
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/session"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
)

// leaveToBoot has a generation with other accounts wait for a reboot: something else of it
// could not even be begun on this root, as a file of a user who is not there before the
// change.
func (c *Cycle) leaveToBoot(ctx context.Context, next *track.Found, why error) (*spec.Status, error) {
	c.Boot.Live.ForBoot = &state.ForBoot{Overlay: next.Generation.Overlay, Reason: why.Error()}
	if err := errors.Join(c.EndTrial(), c.look.Wait(next, "a reboot: "+why.Error())); err != nil {
		return nil, err
	}
	return c.look.Status(ctx)
}

// try makes a change of the running root, or of one that has come up, all of it or
// nothing. What can cut the node off is on trial before anything of it is made.
func (c *Cycle) try(ctx context.Context, t *turn, step decide.Step) (last bool, err error) {
	if t.trial, err = c.begin(t, step); err != nil {
		return true, err
	}
	switch {
	case t.comesUp && t.trial == nil:
		t.status, err = c.enforce(ctx, t.next)
		return true, err
	case t.comesUp:
		t.result = c.effect.LookAt(ctx, t.next, func(ctx context.Context) items.Result {
			return items.Reconcile(ctx, c.effect.Items(t.next), c.Journal)
		})
		t.before = nil // nothing ran on this root
		err = c.effect.Counted(c.effect.Corrections().Begin(t.next.Generation.Overlay))
	default:
		err = c.change(ctx, t)
	}
	t.event = decide.Made
	return false, err
}

// change applies a generation to the running root.
func (c *Cycle) change(ctx context.Context, t *turn) error {
	before, next := t.before, t.next
	if err := c.TryAgain(next.Generation); err != nil {
		return err
	}
	making, made := c.effect.InTime(ctx, before, next, func(s *state.State, why string) { s.Reject(next.Generation, why, time.Now()) })
	if before == nil {
		t.result = made(items.Reconcile(making, c.effect.Items(next), c.Journal))
	} else if t.result = made(items.Transact(making, c.effect.Items(next), c.effect.Items(before), c.Journal, c.effect.Guard(next))); t.result.Err != nil {
		return nil
	}
	if err := c.effect.MoveCorrections(before, next, t.result); err != nil {
		return err
	}
	if t.result.Health == spec.HealthQuarantined { // that may have ended with the change
		seen := c.effect.Look(ctx, next)
		t.result.Items, t.result.Drift, t.result.Health = seen.Items, seen.Drift, seen.Health
	}
	if before != nil {
		c.root.SayLeft(before, next, t.result)
	}
	return nil
}

// unkept undoes a change on trial of which it could not be noted that it is in effect.
func (c *Cycle) unkept(ctx context.Context, why error) error {
	s, err := c.Folder.Load()
	if err != nil || !s.Trial.Pending() {
		return err
	}
	return c.undo(ctx, "it could not be kept: "+why.Error())
}

// moved notes that a generation is in effect.
func (c *Cycle) moved(ctx context.Context, next *track.Found, result items.Result) (*spec.Status, error) {
	c.RecordChanges(result, next.Generation.Generation, fmt.Sprint("generation ", next.Generation.Generation))
	c.services.Note(&next.Overlay)
	if err := c.Kept.Commit(record.Change{Boot: func(b *state.Boot) { b.Live.TakenBack, b.Live.Without = nil, nil }}); err != nil {
		c.Say("%v", err) // it is written again with what follows
	}
	if err := c.effect.Retire(ctx, result); err != nil {
		return nil, err
	}
	if err := c.cycle(ctx, &turn{event: decide.Effect, next: next, result: result, applied: true}); err != nil {
		return nil, errors.Join(err, c.unkept(ctx, err))
	}
	if err := c.Remember(); err != nil {
		return nil, err
	}
	return c.look.Report(next, result)
}

// busyFor is how long something that was in use is left alone before it is tried again.
const busyFor = time.Hour

// takenBack notes that the node goes on with what ran before, since the change failed, or
// since this process ends, which says nothing about it.
func (c *Cycle) takenBack(ctx context.Context, t *turn, step decide.Step) (*spec.Status, error) {
	before, next, result := t.before, t.next, t.result
	s, err := c.Folder.Load()
	if err != nil {
		return nil, errors.Join(result.Err, err)
	}
	var did string
	stays := fmt.Sprintf("; generation %d is in effect", before.Generation.Generation)
	switch step.Act {
	case decide.Blame:
		did = "took it back, and does not try it again" + stays
		s.Reject(next.Generation, result.Err.Error(), time.Now())
	case decide.Postpone:
		did = "took it back, and tries it again in an hour and at a boot" + stays
		s.Postpone(next.Generation, result.Err.Error(), time.Now(), time.Now().Add(busyFor))
	default:
		did = "changed nothing, and tries it again at each sync"
	}
	if t.returns { // the decision to go there goes with it
		did = "took it back, and goes on as before" + stays
	}
	s.Trial = nil
	if err := c.Folder.SaveVerdict(s); err != nil {
		return nil, errors.Join(result.Err, err)
	}
	failed := fmt.Errorf("generation %d was not applied: %w", next.Generation.Generation, result.Err)
	c.RecordStep("taken-back", events.With("generation", next.Generation.Generation), events.With("stays", before.Generation.Generation), events.With("why", step.Why))
	if step.Name != "cut-short" { // which is not a failure
		c.Note(next.Generation, result.Err, spec.Event{Event: spec.EventTakenBack, Transition: step.Name, Did: did, Console: blackbox.Console(session.Kmsg)})
		c.Boot.Live.TakenBack = &state.TakenBack{Generation: next.Generation.Generation, Reason: step.Why}
	}
	c.SetSync(spec.SyncBehind, step.Why)
	if err := c.Remember(); err != nil {
		return nil, errors.Join(failed, err)
	}
	if !result.RolledBack { // what it found is what next lacks, and before runs
		seen := c.effect.Look(ctx, before)
		result.Items, result.Drift, result.Health = seen.Items, seen.Drift, seen.Health
	}
	status, err := c.look.Report(before, result)
	return status, errors.Join(failed, err)
}

// applyPause puts a generation in effect that says that nothing is to be changed.
func (c *Cycle) applyPause(ctx context.Context, next *track.Found, why string) (*spec.Status, error) {
	c.Say("nothing is changed now: %s", why)
	if err := c.cycle(ctx, &turn{event: decide.Effect, next: next, rests: true}); err != nil {
		return nil, err
	}
	c.Boot.Live.TakenBack = nil
	if err := c.Remember(); err != nil {
		return nil, err
	}
	result := c.effect.Look(ctx, next)
	if err := c.effect.Counted(c.effect.Corrections().Save()); err != nil {
		return nil, err
	}
	return c.look.Report(next, result)
}
