// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/blackbox"
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
)

// try makes a change of the running root, or of one that has come up, all of it or
// nothing. What can cut the node off is on trial before anything of it is made.
func (n *Node) try(ctx context.Context, t *turn, step decide.Step) (last bool, err error) {
	if t.trial, err = n.begin(t, step); err != nil {
		return true, err
	}
	switch {
	case t.comesUp && t.trial == nil:
		t.status, err = n.enforce(ctx, t.next)
		return true, err
	case t.comesUp:
		t.result = n.lookAt(ctx, t.next, func(ctx context.Context) items.Result {
			return items.Reconcile(ctx, n.items(t.next), n.journal)
		})
		t.before = nil // nothing ran on this root
		err = n.counted(n.corrections().Begin(t.next.Generation.Overlay))
	default:
		err = n.change(ctx, t)
	}
	t.event = decide.Made
	return false, err
}

// change applies a generation to the running root.
func (n *Node) change(ctx context.Context, t *turn) error {
	before, next := t.before, t.next
	if err := n.tryAgain(next.Generation); err != nil {
		return err
	}
	making, made := n.inTime(ctx, before, next, func(s *state.State, why string) { s.Reject(next.Generation, why, time.Now()) })
	if before == nil {
		t.result = made(items.Reconcile(making, n.items(next), n.journal))
	} else if t.result = made(items.Transact(making, n.items(next), n.items(before), n.journal, n.guard(next))); t.result.Err != nil {
		return nil
	}
	if err := n.moveCorrections(before, next, t.result); err != nil {
		return err
	}
	if t.result.Health == spec.HealthQuarantined { // that may have ended with the change
		seen := n.lookAt(ctx, next, func(ctx context.Context) items.Result {
			return items.Look(ctx, n.items(next), n.guard(next))
		})
		t.result.Items, t.result.Drift, t.result.Health = seen.Items, seen.Drift, seen.Health
	}
	if before != nil {
		n.sayLeft(before, next, t.result)
	}
	return nil
}

// unkept undoes a change on trial of which it could not be noted that it is in effect.
func (n *Node) unkept(ctx context.Context, why error) error {
	s, err := n.folder.Load()
	if err != nil || !s.Trial.Pending() {
		return err
	}
	return n.undo(ctx, "it could not be kept: "+why.Error())
}

// tryAgain forgets why a generation failed, before it is made once more: what passes now is
// not to be left for that.
func (n *Node) tryAgain(g state.Generation) error {
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	if s.Staged == nil || !s.Staged.Same(g) || s.Staged.Again == 0 {
		return nil
	}
	s.TryAgain(g)
	return n.folder.Save(s)
}

// moved notes that a generation is in effect.
func (n *Node) moved(ctx context.Context, next *track.Found, result items.Result) (*spec.Status, error) {
	n.recordChanges(result, next.Generation.Generation, fmt.Sprint("generation ", next.Generation.Generation))
	n.noteServices(&next.Overlay)
	n.boot.Live.TakenBack, n.boot.Live.Without = nil, nil
	if err := n.retire(ctx, result); err != nil {
		return nil, err
	}
	if err := n.cycle(ctx, &turn{event: decide.Effect, next: next, result: result, applied: true}); err != nil {
		return nil, errors.Join(err, n.unkept(ctx, err))
	}
	if err := n.remember(); err != nil {
		return nil, err
	}
	return n.report(next, result)
}

// busyFor is how long something that was in use is left alone before it is tried again.
const busyFor = time.Hour

// takenBack notes that the node goes on with what ran before, since the change failed, or
// since this process ends, which says nothing about it.
func (n *Node) takenBack(ctx context.Context, t *turn, step decide.Step) (*spec.Status, error) {
	before, next, result := t.before, t.next, t.result
	s, err := n.folder.Load()
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
	if err := n.folder.SaveVerdict(s); err != nil {
		return nil, errors.Join(result.Err, err)
	}
	failed := fmt.Errorf("generation %d was not applied: %w", next.Generation.Generation, result.Err)
	n.recordStep("taken-back", events.With("generation", next.Generation.Generation), events.With("stays", before.Generation.Generation), events.With("why", step.Why))
	if step.Name != "cut-short" { // which is no failure
		n.note(next.Generation, result.Err, spec.Event{Event: spec.EventTakenBack, Transition: step.Name, Did: did, Console: blackbox.Console(kmsg)})
		n.boot.Live.TakenBack = &state.TakenBack{Generation: next.Generation.Generation, Reason: step.Why}
	}
	n.setSync(spec.SyncBehind, step.Why)
	if err := n.remember(); err != nil {
		return nil, errors.Join(failed, err)
	}
	if !result.RolledBack { // what it found is what next lacks, and before runs
		seen := n.lookAt(ctx, before, func(ctx context.Context) items.Result {
			return items.Look(ctx, n.items(before), n.guard(before))
		})
		result.Items, result.Drift, result.Health = seen.Items, seen.Drift, seen.Health
	}
	status, err := n.report(before, result)
	return status, errors.Join(failed, err)
}

// wait leaves a generation to a later time.
func (n *Node) wait(next *track.Found, why string) error {
	n.say("generation %d waits for %s", next.Generation.Generation, why)
	n.setSync(spec.SyncBehind, "waits for "+why)
	return errors.Join(n.remember(), n.markReboot())
}
