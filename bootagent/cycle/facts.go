// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/effect"
	"github.com/caisson-os/caisson/bootagent/gate"
	"github.com/caisson-os/caisson/bootagent/run"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"golang.org/x/sys/unix"
)

// facts reads what the next decision depends on. It changes nothing.
func (c *Cycle) facts(ctx context.Context, t *turn) (*decide.Facts, error) {
	s, err := c.Folder.Load()
	if err != nil {
		return nil, err
	}
	f := &decide.Facts{
		Event: t.event, Attached: c.Boot.Mode == spec.ModeAttached, Begun: c.Begun(), Remembers: c.Boot.Disk != "" && !c.Boot.ReadOnly && c.Folder.Unsaved() == nil,
		Boot: c.Scopes.Kernel, Up: c.Up(), Now: time.Now().Unix(), Ended: ctx.Err() != nil, Retry: c.Retries,
		Best: s.Best(), Current: s.Current, Staged: s.Staged, Ahead: s.Ahead, Root: c.Boot.Generation, Without: c.Boot.Live.Without,
	}
	if trial := s.Trial; trial != nil && !trial.Pending() {
		f.Undone = &trial.Generation
	}
	switch {
	case t.event == decide.Begin || t.event == decide.Undo || t.event == decide.Early:
		f.Runs = c.effect.Runs(s)
	case t.event == decide.Effect || t.event == decide.Judged:
		f.Runs = &t.next.Generation
	case t.before != nil:
		f.Runs = &t.before.Generation
	}
	if f.Run, err = c.operate.Phase(s, f.Runs); err != nil {
		return nil, err
	}
	switch t.event {
	case decide.Begin:
		f.HoldOver = c.Tracker != nil && s.Hold != nil && s.Tracking != spec.Following && s.HoldAt(time.Now().Unix()) == nil
		f.Return = c.Tracker != nil && c.destination.CanReturn(s)
		f.Doubt = s.Doubted != nil && f.Runs != nil && !f.Runs.Same(*s.Doubted)
	case decide.Look:
		f.Elsewhere = f.Best != nil && !c.root.RunsHere(f.Best.Layer)
		f.Paused, err = c.effect.PausedBy(t.before)
	case decide.Answer:
		f.Offer = c.offer(t)
		if t.next != nil {
			f.Paused, err = c.effect.PausedBy(t.next)
		}
	case decide.Try:
		f.Try, err = c.attempt(ctx, s, t)
	case decide.Early:
		f.Prior = c.early.Prior(s, t.next, f.Run.Phase != run.Entering)
	case decide.Made:
		f.Result = decide.Result{Failed: t.before != nil && t.result.Err != nil, RolledBack: t.result.RolledBack,
			OtherLayer: !t.returns && t.before != nil && t.before.Generation.Layer != t.next.Generation.Layer}
		if f.Result.Failed {
			f.Result.Why, f.Result.Busy = t.result.Err.Error(), passes(t.result.Err) && !t.next.Generation.IsAhead()
		}
		if t.trial != nil {
			f.Result.Trial = t.trial.Confirm
		}
	case decide.Probed, decide.Doubted:
		if t.fault != nil {
			f.Reach = t.fault.Error()
		}
		f.Outage = c.Boot.Live.Asked == 0 && c.Boot.Sync == spec.SyncUnreachable // which is the loader's word until then
	case decide.Undo:
		f.Undo = decide.Fault{Reason: t.why, WayBack: c.effect.WayBack(s) != nil}
	case decide.Effect:
		f.Proof, err = c.proof(ctx, s, t)
	case decide.Judged:
		f.Gates, f.Paused, err = c.gates(ctx, s, t)
	}
	return f, err
}

// offer is what the registry was found to have.
func (c *Cycle) offer(t *turn) decide.Offer {
	if t.fault != nil {
		return decide.Offer{Failed: true}
	}
	next := t.next
	o := decide.Offer{Held: next.Held, Unchanged: next.Unchanged, Pauses: next.Overlay.Pause != nil, Generation: next.Generation, Attempts: next.Generation.Attempts, Live: true}
	if next.Generation.Pair(c.Boot.Generation) {
		o.Attempts = 0 // the boot that is running now does not count against it
	}
	switch {
	case o.Held || o.Unchanged || c.Boot.Mode == spec.ModeAttached:
	case t.before == nil:
		o.Here = c.root.RunsHere(next.Overlay.Layer)
	default:
		o.Live, o.Why = c.destination.Extent(t.before, next)
	}
	return o
}

// attempt is what decides whether a change is on trial.
func (c *Cycle) attempt(ctx context.Context, s *state.State, t *turn) (a decide.Attempt, err error) {
	next := t.next
	if t.comesUp && len(spec.CutsOff(&spec.Items{}, &next.Overlay.Items)) > 0 {
		if err := c.Reached(ctx, c.Within()/6); err != nil {
			a.Unreached = err.Error()
			return a, nil
		}
	}
	t.kept = c.effect.Kept(s, next.Generation)
	from := &track.Found{Generation: next.Generation, Overlay: spec.Overlay{Items: t.kept}}
	if t.before != nil && !t.comesUp {
		from = t.before
	}
	a.Cuts = strings.Join(spec.CutsOff(&from.Overlay.Items, &next.Overlay.Items), ", ")
	a.Asked = next.Overlay.Confirm != nil && s.Current != nil && len(effect.ChangedKinds(from, next)) > 0
	return a, nil
}

// proof is what speaks for a generation that is in effect.
func (c *Cycle) proof(ctx context.Context, s *state.State, t *turn) (decide.Proof, error) {
	record, err := gate.Load(c.Path(paths.RunGates))
	g, applied := t.next.Generation, c.Boot.Live.Applied
	unproven := (c.Boot.Mode != spec.ModeAttached && g.Pair(c.Boot.Generation) || applied != nil && applied.Same(g)) && s.Unproven(g)
	judged := record.Of(c.Scopes.Root, g.Overlay)
	t.reach = unproven && !judged && !t.rests && c.soak.MustReach(s, t.next) && c.Reached(ctx, c.Within()/6) != nil // else it has shown that
	return decide.Proof{Of: g, Unproven: unproven, Keeps: t.keeps, Applied: t.applied, Gates: (t.next.Overlay.Gates != nil || t.reach) && !t.rests,
		Soaking: judged, Health: string(t.result.Health)}, err
}

// gates is what the checks of what is in effect say, and where what failed can go back to.
func (c *Cycle) gates(ctx context.Context, s *state.State, t *turn) (g decide.Gates, paused string, err error) {
	v := c.soak.Verdict(s, t.judged)
	t.why = v.Why
	g.Passed, g.Failed, g.Why = v.State == gate.Passed, v.State == gate.Failed, v.Why
	if !g.Failed {
		return g, "", nil
	}
	if paused, err = c.effect.PausedBy(t.next); paused != "" || err != nil {
		return g, paused, err
	}
	failed := t.next.Generation
	best := s.Best()
	if failed.Pair(c.Boot.Generation) {
		best = s.Back(failed)
	}
	if best == nil || best.Pair(failed) {
		return g, "", nil
	}
	g.CutOff = v.Check == gate.Reach.Name
	t.cutOff = g.CutOff
	if t.before, err = c.Tracker.Recall(best); err != nil {
		c.Say("what ran before cannot come back: %v", err)
		t.before = nil
		return g, "", nil
	}
	g.Good, g.SameLayer = true, c.root.RunsHere(best.Layer)
	g.Live, _ = c.destination.Extent(t.next, t.before)
	g.Soft = c.destination.SoftBack(ctx, s, failed, *best, v.Why)
	return g, "", nil
}

// passes reports whether a change failed for what is not its own and may go away: what it takes
// away is in use, or the disk takes no writes, as one that is full.
func passes(err error) bool { return errors.Is(err, unix.EBUSY) || track.OfDisk(err) }
