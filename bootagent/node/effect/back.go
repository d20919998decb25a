// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"context"
	"fmt"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// WayBack returns what this root can go back to from the change on trial: what proved
// itself, or else what it was at before; nil where there is neither.
func (ef *Effect) WayBack(s *state.State) *state.Generation {
	if best := s.Best(); best != nil && ef.root.RunsHere(best.Layer) {
		return best
	}
	if a := ef.Boot.Live.Applied; a != nil && !s.Trial.Of(*a) && ef.root.RunsHere(a.Layer) {
		return a
	}
	return nil
}

// Kept is how that is set which can cut the node off, where there is nothing good to go back to:
// was set, where some of it was set on trial before services started.
func (ef *Effect) Kept(s *state.State, g state.Generation) (kept spec.Items) {
	if t := s.Trial; t.Pending() && t.Whole {
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
	cameWith, applied := g.Pair(ef.Boot.Generation), ef.Boot.Live.Applied
	if applied == nil && cameWith || applied != nil && applied.Same(g) && applied.Pair(g) {
		return nil
	}
	if err := durable.Remove(ef.Path(paths.RunGates)); err != nil {
		return err
	}
	return ef.Owner.Note(func(l *state.Live) {
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
		return ef.endAfter(ctx, watch, fmt.Sprintf("putting generation %d back", back.Generation.Generation), back, 2*limit, run)
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

// Back returns what this root goes back to, or else what is on trial,
// but with what can cut the node off as it was.
func (ef *Effect) Back(s *state.State) (found *track.Found, err error) {
	if to := ef.WayBack(s); to != nil {
		return ef.Tracker.Recall(to)
	}
	if found, err = ef.Tracker.Recall(&s.Trial.Generation); err == nil {
		found.Overlay.Items = found.Overlay.Items.Keeping(s.Trial.Kept)
	}
	return found, err
}
