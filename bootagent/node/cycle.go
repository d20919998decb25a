// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/blackbox"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/metrics"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Apply reconciles the node with the overlay it runs. A generation that was
// staged for this boot is promoted: it came up and was applied.
func (n *Node) Apply(ctx context.Context) (*spec.Status, error) {
	if err := n.settle(ctx); err != nil {
		return nil, err
	}
	if n.follower != nil {
		if err := errors.Join(n.expire(), n.resumeHold()); err != nil {
			return nil, err
		}
	}
	found, err := n.running()
	if err != nil {
		return nil, err
	}
	switch ok, why, err := n.mayAct(found); {
	case err != nil:
		return nil, err
	case !ok:
		n.o.Say("nothing is changed now: %s", why)
		result := n.look(ctx, found, func(ctx context.Context) items.Result {
			return items.Look(ctx, n.items(found), n.guard(found))
		})
		if err := n.corrections().Save(); err != nil {
			return nil, err
		}
		return n.report(found, result)
	}
	if err := n.takeOver(); err != nil {
		return nil, err
	}
	n.bring(ctx, &found.Overlay)
	switch unproven, err := n.unproven(found); {
	case err != nil:
		return nil, err
	case unproven:
		return n.comeUp(ctx, found)
	}
	return n.enforce(ctx, found)
}

// enforce makes the node as an overlay says.
func (n *Node) enforce(ctx context.Context, found *track.Found) (*spec.Status, error) {
	guard := n.guard(found)
	keep := func(ctx context.Context) items.Result {
		return items.Keep(ctx, n.items(found), n.journal, guard)
	}
	result := n.look(ctx, found, keep)
	n.noteServices(&found.Overlay)
	n.recordChanges(result, found.Generation.Generation, n.cause(guard != nil))
	remember := func() error { return n.corrections().Keep(found.Generation.Overlay) }
	if guard == nil {
		remember = func() error { return n.corrections().Begin(found.Generation.Overlay) }
	}
	if err := remember(); err != nil {
		return nil, err
	}
	if err := n.retire(ctx, result); err != nil {
		return nil, err
	}
	if waits, err := n.waits(); err != nil {
		return nil, err
	} else if ctx.Err() == nil && !waits && !n.partial(found.Generation) {
		if err := n.promote(evidence{found.Generation, &result, found.Overlay.Gates}); err != nil {
			return nil, err
		}
	}
	return n.report(found, result)
}

// running returns the overlay that this root runs, verified again: the one that the
// loader chose, until a live change has moved the node on.
func (n *Node) running() (*track.Found, error) {
	if n.follower == nil {
		return nil, n.unbound
	}
	s, err := n.folder.Load()
	if err != nil {
		return nil, err
	}
	g := n.boot.Generation
	if n.boot.Live.Applied != nil {
		g = *n.boot.Live.Applied
	}
	if best := s.Best(); best != nil && n.runsHere(best.Layer) && (!older(best, &g) || s.Trial.Of(g)) {
		g = *best
	}
	if n.waiting(s) {
		g = s.Trial.Generation
	}
	if g.Overlay == "" {
		return nil, track.ErrNothing
	}
	found, err := n.follower.Recall(&g)
	if err != nil && g.IsAhead() && s.Current != nil && s.Current.Layer == g.Layer {
		// A newer signature of it may leave this layer out.
		n.o.Say("what runs is not signed for this layer any more: %v", err)
		g = *s.Current
		found, err = n.follower.Recall(&g)
	}
	if err == nil && n.partial(g) {
		found.Overlay.Items = found.Overlay.Items.Keeping(n.boot.Live.Without.Kept)
	}
	return found, err
}

func older(a, b *state.Generation) bool {
	return a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.Generation < b.Generation
}

// Sync asks for a newer generation and applies it when the running root can take
// it, all of it or nothing. What needs another root is staged for the next boot.
// A refusal changes nothing: the node goes on as it is. So does a change that
// fails; then there is a status and an error.
func (n *Node) Sync(ctx context.Context) (*spec.Status, error) {
	if n.follower == nil {
		return nil, n.unbound
	}
	st, err := n.sync(ctx)
	n.free()               // what waits may be another layer now
	if n.o.By != Service { // who asks by hand leaves a trace, whatever comes of it
		n.record("asked", field{"sync", n.boot.Sync}, field{"why", n.boot.SyncDetail})
	}
	return st, err
}

func (n *Node) sync(ctx context.Context) (*spec.Status, error) {
	if err := n.settle(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(n.expire(), n.resumeHold()); err != nil {
		return nil, err
	}
	before, err := n.running()
	switch {
	case errors.Is(err, track.ErrNothing):
	case err != nil: // the keys were changed, or the disk was: what the registry has may still be good
		n.o.Say("the running overlay is missing or no longer verifies: %v", err)
	}
	found, err := n.follower.Sync(ctx)
	n.boot.Live.Asked = time.Now().Unix()
	metrics.CountFetch(&n.boot.Live.Counts, err, time.Now())
	if err != nil {
		if refusal.Of(err) != "" {
			n.note(state.Generation{}, err, spec.Event{Event: spec.EventRefused, Did: "goes on with what it has"})
		}
		n.setSync(track.Describe(err))
	} else {
		if err := errors.Join(n.noteHad(found), n.here(ctx, before, found)); err != nil {
			return nil, err
		}
		n.setSync(n.axis(found))
		same := before != nil && before.Generation.Overlay == found.Generation.Overlay
		if same || found.Unchanged { // the publisher took back what could not be applied
			n.boot.Live.TakenBack = nil
		}
	}
	if saveErr := n.remember(); saveErr != nil {
		return nil, errors.Join(err, saveErr)
	}
	if err == nil && !found.Held {
		if before, err = n.overtake(ctx, before, found); err != nil {
			return nil, err
		}
	}
	switch {
	case err != nil && before == nil:
		return nil, err
	case err != nil:
		status, statusErr := n.Status(ctx)
		return status, errors.Join(err, statusErr)
	case found.Held || found.Unchanged:
		return n.Apply(ctx)
	case before != nil && n.boot.Live.Without.Of(found.Generation) && !n.retry:
		return n.Apply(ctx)
	case before != nil && n.rejected(found.Generation) != "":
		return n.decline(ctx, found.Generation, n.rejected(found.Generation))
	case before != nil && before.Generation.Pair(found.Generation) && !n.partial(found.Generation):
		// A new generation of what runs already: there is nothing to prove.
		if err := n.promote(evidence{generation: found.Generation, gates: found.Overlay.Gates}); err != nil {
			return nil, err
		}
		return n.Apply(ctx)
	}
	return n.move(ctx, before, found)
}

// move goes from one overlay to the next on the running root.
func (n *Node) move(ctx context.Context, before, next *track.Found) (*spec.Status, error) {
	attached := n.boot.Mode == spec.ModeAttached
	live, why := true, ""
	switch {
	case before != nil && !attached:
		live, why = n.extent(before, next)
	case before == nil && !attached && !n.runsHere(next.Overlay.Layer):
		live, why = false, "another layer"
	}
	why = "a reboot: " + why
	acts := true
	if live {
		var err error
		if acts, why, err = n.mayAct(next); err != nil {
			return nil, err
		}
	}
	if !acts && before != nil && next.Overlay.Pause != nil {
		return n.rest(ctx, next, why)
	}
	if err := n.takeOver(); err != nil {
		return nil, err
	}
	if !live || !acts {
		if err := n.wait(next, why); err != nil || before == nil {
			return nil, err
		}
		return n.Status(ctx)
	}
	return n.change(ctx, before, next)
}

// change applies a generation to the running root, all of it or nothing. What can cut
// the node off stays only when it did not.
func (n *Node) change(ctx context.Context, before, next *track.Found) (*spec.Status, error) {
	n.bring(ctx, &next.Overlay)
	t, err := n.begin(before, next)
	if err != nil {
		return nil, err
	}
	var result items.Result
	making, made := n.inTime(ctx, before, next, func(s *state.State, why string) { s.Reject(next.Generation, why, time.Now()) })
	if before == nil {
		result = made(items.Reconcile(making, n.items(next), n.journal))
	} else if result = made(items.Transact(making, n.items(next), n.items(before), n.journal, n.guard(next))); result.Err != nil {
		if before.Generation.Layer != next.Generation.Layer && !result.RolledBack && ctx.Err() == nil {
			return n.leaveToBoot(ctx, next, result.Err)
		}
		return n.takenBack(ctx, before, next, result)
	}
	if err := n.moveCorrections(before, next, result); err != nil {
		return nil, err
	}
	if result.Health == spec.HealthQuarantined { // that may have ended with the change
		seen := n.look(ctx, next, func(ctx context.Context) items.Result {
			return items.Look(ctx, n.items(next), n.guard(next))
		})
		result.Items, result.Drift, result.Health = seen.Items, seen.Drift, seen.Health
	}
	if before != nil {
		n.sayLeft(before, next, result)
	}
	return n.tried(ctx, t, next, result)
}

// moved notes that a generation is in effect.
func (n *Node) moved(ctx context.Context, next *track.Found, result items.Result) (*spec.Status, error) {
	n.recordChanges(result, next.Generation.Generation, fmt.Sprint("generation ", next.Generation.Generation))
	n.noteServices(&next.Overlay)
	n.boot.Live.TakenBack, n.boot.Live.Without = nil, nil
	if err := n.retire(ctx, result); err != nil {
		return nil, err
	}
	if err := n.promote(evidence{next.Generation, &result, next.Overlay.Gates}); err != nil {
		return nil, err
	}
	if err := n.remember(); err != nil {
		return nil, err
	}
	return n.report(next, result)
}

// takenBack notes that the node goes on with before, since next failed, or since this
// process ends, which says nothing about next.
func (n *Node) takenBack(ctx context.Context, before, next *track.Found, result items.Result) (*spec.Status, error) {
	interrupted := ctx.Err() != nil
	if result.RolledBack && !interrupted { // what could not even be begun disturbs nobody when it is tried again
		s, err := n.folder.Load()
		if err != nil {
			return nil, errors.Join(result.Err, err)
		}
		s.Reject(next.Generation, result.Err.Error(), time.Now())
		if err := n.folder.Save(s); err != nil {
			return nil, errors.Join(result.Err, err)
		}
	}
	failed := fmt.Errorf("generation %d was not applied: %w", next.Generation.Generation, result.Err)
	n.record("taken-back", field{"generation", next.Generation.Generation}, field{"stays", before.Generation.Generation}, field{"why", result.Err})
	did := "changed nothing, and tries it again at each sync"
	switch {
	case result.RolledBack && interrupted:
		did = fmt.Sprintf("was ended in the middle, and took it back: the next one makes it; generation %d is in effect", before.Generation.Generation)
	case result.RolledBack:
		did = fmt.Sprintf("took it back, and does not try it again; generation %d is in effect", before.Generation.Generation)
	}
	n.note(next.Generation, result.Err, spec.Event{Event: spec.EventTakenBack, Did: did, Console: blackbox.Console(kmsg)})
	n.setSync(spec.SyncBehind, result.Err.Error())
	n.boot.Live.TakenBack = &state.TakenBack{Generation: next.Generation.Generation, Reason: result.Err.Error()}
	if err := errors.Join(n.endTrial(), n.remember()); err != nil {
		return nil, errors.Join(failed, err)
	}
	if !result.RolledBack { // what it found is what next lacks, and before runs
		seen := n.look(ctx, before, func(ctx context.Context) items.Result {
			return items.Look(ctx, n.items(before), n.guard(before))
		})
		result.Items, result.Drift, result.Health = seen.Items, seen.Drift, seen.Health
	}
	status, err := n.report(before, result)
	return status, errors.Join(failed, err)
}

// wait leaves a generation to a later time.
func (n *Node) wait(next *track.Found, why string) error {
	n.o.Say("generation %d waits for %s", next.Generation.Generation, why)
	n.setSync(spec.SyncBehind, "waits for "+why)
	return errors.Join(n.remember(), n.markReboot())
}
