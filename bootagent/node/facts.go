// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/gate"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/run"
	"github.com/caisson-os/caisson/bootagent/say"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// look reads what the next decision depends on. It changes nothing.
func (n *Node) look(ctx context.Context, t *turn) (*decide.Facts, error) {
	s, err := n.folder.Load()
	if err != nil {
		return nil, err
	}
	f := &decide.Facts{
		Event: t.event, Attached: n.boot.Mode == spec.ModeAttached, Begun: n.begun(), Remembers: n.boot.Disk != "" && !n.boot.ReadOnly && n.folder.Unsaved() == nil,
		Boot: n.scopes.Kernel, Up: n.up(), Now: time.Now().Unix(), Ended: ctx.Err() != nil, Retry: n.retry,
		Best: s.Best(), Current: s.Current, Staged: s.Staged, Ahead: s.Ahead, Root: n.boot.Generation, Without: n.boot.Live.Without,
	}
	if trial := s.Trial; trial != nil && !trial.Pending() {
		f.Undone = &trial.Generation
	}
	switch {
	case t.event == decide.Begin || t.event == decide.Undo:
		f.Runs = n.runs(s)
	case t.event == decide.Effect || t.event == decide.Judged:
		f.Runs = &t.next.Generation
	case t.before != nil:
		f.Runs = &t.before.Generation
	}
	if f.Run, err = n.phase(s, f.Runs); err != nil {
		return nil, err
	}
	switch t.event {
	case decide.Begin:
		f.HoldOver = n.follower != nil && s.Hold != nil && s.Tracking != spec.Following && s.HoldAt(time.Now().Unix()) == nil
		f.Return = n.follower != nil && n.canReturn(s, f)
	case decide.Look:
		f.Elsewhere = f.Best != nil && !n.runsHere(f.Best.Layer)
		f.Paused, err = n.pausedBy(t.before)
	case decide.Answer:
		f.Offer = n.offer(t)
		if t.next != nil {
			f.Paused, err = n.pausedBy(t.next)
		}
	case decide.Try:
		f.Try, err = n.attempt(ctx, s, t)
	case decide.Made:
		f.Result = decide.Result{Failed: t.before != nil && t.result.Err != nil, RolledBack: t.result.RolledBack,
			OtherLayer: !t.returns && t.before != nil && t.before.Generation.Layer != t.next.Generation.Layer}
		if f.Result.Failed {
			f.Result.Why, f.Result.Busy = t.result.Err.Error(), errors.Is(t.result.Err, unix.EBUSY) && !t.next.Generation.IsAhead()
		}
		if t.trial != nil {
			f.Result.Trial = t.trial.Confirm
		}
	case decide.Probed:
		if t.fault != nil {
			f.Reach = t.fault.Error()
		}
	case decide.Undo:
		f.Undo = decide.Fault{Reason: t.why, WayBack: n.wayBack(s) != nil}
	case decide.Effect:
		f.Proof, err = n.proof(s, t)
	case decide.Judged:
		f.Gates, f.Paused, err = n.gates(ctx, s, t)
	}
	return f, err
}

// runs is what this root runs, nil where that is nothing.
func (n *Node) runs(s *state.State) *state.Generation {
	return decide.Runs(s, n.boot.Generation, n.boot.Live.Applied, n.scopes.Kernel, n.runsHere)
}

// phase is what this node is at.
func (n *Node) phase(s *state.State, runs *state.Generation) (run.Record, error) {
	root := run.Root{Attached: n.boot.Mode == spec.ModeAttached, Begun: n.begun(), Boot: n.scopes.Kernel, By: n.boot.Generation, Runs: runs}
	if runs != nil {
		judged, err := gate.Load(n.path(paths.RunGates))
		if err != nil {
			return run.Record{}, err
		}
		root.Judged = judged.Of(n.scopes.Root, runs.Overlay)
		if n.follower != nil && !root.Attached {
			root.Takes = n.takes(s)
		}
	}
	return run.Read(s, &n.boot.Live, root), nil
}

// canReturn reports whether an operator's decision to go back, which this root was not told
// of, can be followed on it.
func (n *Node) canReturn(s *state.State, f *decide.Facts) bool {
	if s.Hold == nil || s.Current == nil || f.Attached || !n.runsHere(s.Current.Layer) || !decide.Older(*s.Current, n.boot.Generation) {
		return false
	}
	now, err := n.follower.Recall(&n.boot.Generation)
	if err != nil {
		return false // running says so
	}
	next, err := n.follower.Recall(s.Current)
	if err != nil {
		return false // it cannot be gone back to
	}
	live, _ := n.extent(now, next)
	return live // else the next boot goes back
}

// pausedBy says why nothing may be changed now, "" where it may. A machine that comes up is
// brought to what its overlay says.
func (n *Node) pausedBy(found *track.Found) (string, error) {
	if found == nil || !n.begun() {
		return "", nil
	}
	p, err := n.pause(found)
	if err != nil || p == nil {
		return "", err
	}
	return say.Pause(p), nil
}

// offer is what the registry was found to have.
func (n *Node) offer(t *turn) decide.Offer {
	if t.fault != nil {
		return decide.Offer{Failed: true}
	}
	next := t.next
	o := decide.Offer{Held: next.Held, Unchanged: next.Unchanged, Pauses: next.Overlay.Pause != nil, Generation: next.Generation, Attempts: next.Generation.Attempts, Live: true}
	if next.Generation.Pair(n.boot.Generation) {
		o.Attempts = 0 // the boot that is running now does not count against it
	}
	switch {
	case o.Held || o.Unchanged || n.boot.Mode == spec.ModeAttached:
	case t.before == nil:
		o.Here = n.runsHere(next.Overlay.Layer)
	default:
		o.Live, o.Why = n.extent(t.before, next)
	}
	return o
}

// attempt is what decides whether a change is on trial.
func (n *Node) attempt(ctx context.Context, s *state.State, t *turn) (a decide.Attempt, err error) {
	next := t.next
	if t.comesUp && len(spec.CutsOff(&spec.Items{}, &next.Overlay.Items)) > 0 {
		if err := n.reached(ctx, n.within()/6); err != nil {
			a.Unreached = err.Error()
			return a, nil
		}
	}
	from := &track.Found{Generation: next.Generation}
	if n.wayBack(s) == nil {
		t.kept = spec.Items{}.Keeping(items.Kept(n.items(from)))
		from.Overlay.Items = t.kept
	}
	if t.before != nil && !t.comesUp {
		from = t.before
	}
	a.Cuts = strings.Join(spec.CutsOff(&from.Overlay.Items, &next.Overlay.Items), ", ")
	a.Asked = next.Overlay.Confirm != nil && s.Current != nil && len(changedKinds(from, next)) > 0
	return a, nil
}

// proof is what speaks for a generation that is in effect.
func (n *Node) proof(s *state.State, t *turn) (decide.Proof, error) {
	record, err := gate.Load(n.path(paths.RunGates))
	g, applied := t.next.Generation, n.boot.Live.Applied
	unproven := (n.boot.Mode != spec.ModeAttached && g.Pair(n.boot.Generation) || applied != nil && applied.Same(g)) && s.Unproven(g)
	return decide.Proof{Of: g, Unproven: unproven, Keeps: t.keeps, Applied: t.applied, Gates: t.next.Overlay.Gates != nil && !t.rests,
		Soaking: record.Of(n.scopes.Root, g.Overlay), Health: string(t.result.Health)}, err
}

// gates is what the checks of what is in effect say, and where what failed can go back to.
func (n *Node) gates(ctx context.Context, s *state.State, t *turn) (g decide.Gates, paused string, err error) {
	v := n.verdict(s, t.judged)
	t.why = v.Why
	g.Passed, g.Failed, g.Why = v.State == gate.Passed, v.State == gate.Failed, v.Why
	if !g.Failed {
		return g, "", nil
	}
	if paused, err = n.pausedBy(t.next); paused != "" || err != nil {
		return g, paused, err
	}
	failed := t.next.Generation
	best := s.Best()
	if best == nil || best.Pair(failed) {
		return g, "", nil
	}
	if t.before, err = n.follower.Recall(best); err != nil {
		n.say("what ran before cannot come back: %v", err)
		t.before = nil
		return g, "", nil
	}
	g.Good, g.SameLayer = true, n.runsHere(best.Layer)
	g.Live, _ = n.extent(t.next, t.before)
	g.Soft = n.softBack(ctx, s, failed, v.Why)
	return g, "", nil
}

// running returns the overlay that this root runs, verified again.
func (n *Node) running() (*track.Found, error) {
	if n.follower == nil {
		return nil, n.unbound
	}
	s, err := n.folder.Load()
	if err != nil {
		return nil, err
	}
	g := n.runs(s)
	if g == nil {
		return nil, track.ErrNothing
	}
	found, err := n.follower.Recall(g)
	if err != nil && g.IsAhead() && s.Current != nil && s.Current.Layer == g.Layer {
		// A newer signature of it may leave this layer out.
		n.say("what runs is not signed for this layer any more: %v", err)
		g = s.Current
		found, err = n.follower.Recall(g)
	}
	if w := n.boot.Live.Without; err == nil && w != nil && w.Overlay == g.Overlay {
		found.Overlay.Items = found.Overlay.Items.Keeping(w.Kept)
	}
	return found, err
}

// found is running where nothing that runs is no error.
func (n *Node) found() (*track.Found, error) {
	found, err := n.running()
	if errors.Is(err, track.ErrNothing) {
		return nil, nil
	}
	return found, err
}

// waiting reports whether a change of this boot is in effect and waits for its operator.
func (n *Node) waiting(s *state.State) bool {
	return s.Trial.Pending() && s.Trial.Boot == n.scopes.Kernel && s.Trial.Ends != 0
}

// begun reports whether this root was brought to what its overlay says at least
// once: a pause is for a machine that runs, not for one that comes up.
func (n *Node) begun() bool { return n.last().RootID == n.scopes.Root }
