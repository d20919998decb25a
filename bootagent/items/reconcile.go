// SPDX-License-Identifier: Apache-2.0

package items

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
)

// Reconcile makes the system as the items want it: check all, restore what left
// the config (last kind first), apply in order, check again. What that second
// check finds is the truth. An item's failure does not stop the others.
//
// The journal is the one that the items were made with.
func Reconcile(ctx context.Context, items []item.Item, j item.Journal) Result {
	return newRun(items, j).reconcile(ctx)
}

// Guard says what is done about drift: about what was set, and is not so any more.
type Guard interface {
	// Judge returns a drift as it is to be treated: as it is to correct it, else with
	// ActionReport, ActionDefer or ActionQuarantine. What a change asks for and was not
	// asked for before is fresh.
	Judge(d spec.Drift, fresh bool) spec.Drift
	// Held lists what of a kind is not in its drift and would not be corrected.
	Held(item string, drift []spec.Drift) []spec.Drift
	// Correct takes note of corrections before they are made.
	Correct(due []spec.Drift) error
	// Undone takes back that one was made; it failed.
	Undone(d spec.Drift)
}

// Keep is Reconcile for a system that was made as the items want it before: what is
// different now is drift, and the guard decides about it.
func Keep(ctx context.Context, items []item.Item, j item.Journal, g Guard) Result {
	r := newRun(items, j)
	r.guard = g
	return r.reconcile(ctx)
}

// Transact is Reconcile for a change on a live node: all of it, or none. The
// change holds the settings of next that previous lacks. What the node lacked before,
// such as what a run that was cut had not done yet, is tried when the change
// stands, and not held against it.
//
// When the preflight refuses a part of the change, nothing is touched; when
// something fails later, the previous items are put in place again. The guard decides
// about what was drift before; nil is one that lets everything be corrected.
func Transact(ctx context.Context, next, previous []item.Item, j item.Journal, g Guard) Result {
	before := newRun(previous, j)
	before.preflight(ctx)
	r := newRun(next, j)
	r.before, r.known, r.fresh = before, before.all(), g
	r.preflight(ctx)
	if err := r.refusal(); err != nil {
		result := r.result(ctx)
		result.Err = fmt.Errorf("nothing was changed: %w", err)
		return result
	}
	r.restore(ctx)
	if r.failure() == nil {
		r.apply(ctx)
	}
	result := r.result(ctx)
	if result.Err == nil {
		if len(r.known) == 0 {
			return result
		}
		rest := Keep(ctx, next, j, g)
		rest.Changes = append(result.Changes, rest.Changes...)
		rest.Steps = append(result.Steps, rest.Steps...)
		rest.Err = nil // the change stands; what is missing still degrades the node
		return rest
	}
	// A cancelled change is taken back all the same.
	ctx = context.WithoutCancel(ctx)
	undo := newRun(previous, j)
	undo.guard, undo.drifted = g, before.keys()
	r.giveBack(ctx, undo.drifted)
	back := undo.reconcile(ctx)
	back.RolledBack = true
	back.Steps = append(result.Steps, back.Steps...)
	back.Err = fmt.Errorf("the change was taken back: %w", errors.Join(result.Err, back.Err))
	return back
}

// Undo takes back a change that was made, or begun: where the system is as tried wants it
// and not as back does, it is made as back does. What neither finds is drift, and left
// to the next look.
func Undo(ctx context.Context, back, tried []item.Item, j item.Journal, g Guard) Result {
	made := newRun(tried, j)
	made.preflight(ctx)
	r := newRun(back, j)
	r.known, r.guard = made.all(), g
	return r.reconcile(ctx)
}

// Look checks and writes nothing: the result is that of a run that did nothing.
func Look(ctx context.Context, items []item.Item, g Guard) Result {
	r := newRun(items, nil)
	r.guard = g
	r.preflight(ctx)
	return r.result(ctx)
}

// Preview returns what Transact would do, or Reconcile where previous is empty. It
// writes nothing.
func Preview(ctx context.Context, next, previous []item.Item, g Guard) ([]spec.Drift, error) {
	before := newRun(previous, nil)
	before.preflight(ctx)
	r := newRun(next, nil)
	r.guard, r.known, r.fresh = g, before.all(), g
	r.preflight(ctx)
	return slices.Concat(r.drift...), r.failure()
}

// Wait ends when nothing that the items started runs in the background any more.
// An agent that applies once and ends calls it before it does.
func Wait(items []item.Item) error {
	var errs []error
	for _, it := range items {
		if w, ok := it.(interface{ Wait() error }); ok {
			errs = append(errs, w.Wait())
		}
	}
	return errors.Join(errs...)
}
