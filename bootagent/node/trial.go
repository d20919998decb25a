// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/bootagent/trial"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/rules"
)

// probe is a question that a node which is not cut off can answer.
type probe struct {
	what string
	ask  func(ctx context.Context) error
}

// probes are what has to succeed after a change that can cut the node off.
func (n *Node) probes() []probe { return []probe{{"the registry", n.dial}} }

// dial asks the registry over a new connection. What it says does not matter.
func (n *Node) dial(ctx context.Context) error {
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	source, err := n.o.opener()(n.follower.Bootstrap, n.way(s, n.follower.Identity))
	if err != nil {
		return err
	}
	_, err = source.Manifest(ctx, oci.RepoFleet, "current", "")
	if errors.Is(err, oci.ErrNotFound) || refusal.Of(err) != "" {
		return nil
	}
	return err
}

// reached asks all probes, for as long as within.
func (n *Node) reached(ctx context.Context, within time.Duration) error {
	clock := n.clock()
	for _, p := range n.probes() {
		if err := trial.Reach(ctx, clock, within, p.ask); err != nil {
			return fmt.Errorf("%s was not reached within %s: %w", p.what, within.Round(time.Second), err)
		}
	}
	return nil
}

func (n *Node) within() time.Duration {
	if n.o.Within > 0 {
		return n.o.Within
	}
	return trial.Within
}

// begin saves that a change is on trial, before anything of it is made, where that was
// decided.
func (n *Node) begin(t *turn, step decide.Step) (*state.Trial, error) {
	next := t.next
	if err := rules.Confirm(next.Overlay.Confirm); err != nil {
		return nil, fmt.Errorf("generation %d is not begun: %w", next.Generation.Generation, err)
	}
	trial := &state.Trial{Generation: next.Generation, Boot: n.scopes.Kernel, Since: time.Now().Unix(), Kept: t.kept}
	switch step.Act {
	case decide.ForWord:
		trial.Confirm, trial.Within = state.ByOperator, next.Overlay.Confirm.Within
	case decide.ForReach:
		trial.Confirm, trial.Within = state.ByReach, int64(n.within()/time.Second)
	default:
		return nil, nil
	}
	s, err := n.folder.Load()
	if err != nil {
		return nil, err
	}
	s.Trial = trial
	if err := n.folder.Save(s); err != nil {
		return nil, fmt.Errorf("a change that may have to be undone is not begun: %w", err)
	}
	n.recordStep("trial", events.With("generation", next.Generation.Generation), events.With("confirm", trial.Confirm), events.With("why", step.Why))
	return trial, nil
}

// await leaves a change to its operator.
func (n *Node) await(ctx context.Context, next *track.Found, result items.Result) (*spec.Status, error) {
	n.recordChanges(result, next.Generation.Generation, fmt.Sprint("generation ", next.Generation.Generation))
	if err := n.retire(ctx, result); err != nil {
		return nil, err
	}
	s, err := n.folder.Load()
	if err != nil {
		return nil, err
	}
	s.Trial.Ends = int64((n.up()+time.Second-1)/time.Second) + s.Trial.Within
	if err := n.saveWord(s); err != nil {
		return nil, errors.Join(err, n.unkept(ctx, err))
	}
	n.say("generation %d is undone unless 'caisson-agent confirm' is called within %d s", next.Generation.Generation, s.Trial.Within)
	n.boot.Live.TakenBack = nil
	if err := n.remember(); err != nil {
		return nil, err
	}
	return n.report(next, result)
}

// Confirm ends the trial of a change that waits for its operator: it stands.
func (n *Node) Confirm(ctx context.Context) error {
	if err := n.settle(ctx); err != nil {
		return err
	}
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	switch {
	case n.waiting(s):
	case s.Trial != nil && !s.Trial.Pending():
		return fmt.Errorf("generation %d was undone: %s", s.Trial.Generation.Generation, s.Trial.Reason)
	default:
		return errors.New("nothing waits to be confirmed")
	}
	g := s.Trial.Generation
	if s.Confirm(n.layersHere(s)...); s.Best().Generation == g.Generation {
		n.boot.Live.Without = nil
	}
	if err := n.saveWord(s); err != nil {
		return err
	}
	n.record("confirmed", events.With("generation", g.Generation), events.With("overlay", g.Overlay))
	n.tidy(s)
	return errors.Join(n.endDeadline(), n.remember())
}

// Retry forgets that a generation was undone or did not pass its gates, and that a swap
// failed, and asks for it again.
func (n *Node) Retry(ctx context.Context) (*spec.Status, error) {
	s, err := n.folder.Load()
	if err != nil {
		return nil, err
	}
	if what, why := s.Retry(); what != nil {
		n.record("retry", events.With("generation", what.Generation), events.With("why", why))
		if err := n.saveWord(s); err != nil {
			return nil, err
		}
	}
	if err := n.retrySwap(); err != nil {
		return nil, err
	}
	n.retry = true
	return n.Sync(ctx)
}

// retrySwap has what the machine did not come up with be entered again.
func (n *Node) retrySwap() error {
	found, err := n.running()
	if errors.Is(err, track.ErrNothing) || refusal.Of(err) != "" {
		return nil // nothing runs that could have been left
	}
	if err != nil {
		return err
	}
	why, err := n.operations(found).RetrySwap()
	if err == nil && why != "" {
		n.record("retry", events.With("operation", spec.LayerSwapName), events.With("why", why))
	}
	return err
}

// TrialEnds returns how long a change still waits for its operator.
func (n *Node) TrialEnds() (left time.Duration, waits bool) {
	s, err := n.folder.Load()
	if err != nil || !n.waiting(s) {
		return 0, false // the next look meets the error
	}
	return max(0, s.Trial.Left(n.up())), true
}

// condemn undoes a change that cut the node off.
func (n *Node) condemn(ctx context.Context, t *turn, why string) (*spec.Status, error) {
	if err := n.undo(ctx, why); err != nil {
		return nil, err
	}
	n.setSync(spec.SyncBehind, fmt.Sprintf("generation %d was undone: %s", t.next.Generation.Generation, why))
	failed := fmt.Errorf("generation %d was undone: after it %w", t.next.Generation.Generation, t.fault)
	if err := n.remember(); err != nil {
		return nil, errors.Join(failed, err)
	}
	found, err := n.running()
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	status, err := n.report(found, items.Look(ctx, n.items(found), n.guard(found)))
	return status, errors.Join(failed, err)
}

// undo takes the change on trial back. Without a reason, the generation is not held
// against itself.
func (n *Node) undo(ctx context.Context, reason string) error {
	return n.cycle(ctx, &turn{event: decide.Undo, why: reason})
}

// putTrialBack takes the change on trial back and then says so: cut in between, it is undone
// once more.
//
// The node goes on with what it knows to be good. Where that is nothing, or needs
// another root, it goes on with the generation, but with what can cut it off as it was.
func (n *Node) putTrialBack(ctx context.Context, reason string, step decide.Step) error {
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	if err := n.folder.MakeRoom(); err != nil { // for the journal of what is taken back
		n.say("%v", err)
	}
	tried := s.Trial
	if tried.Boot != n.scopes.Kernel { // the originals that were taken over ended with its kernel
		if err := n.takeOver(); err != nil {
			return err
		}
	}
	back, err := n.back(s)
	if err != nil {
		return fmt.Errorf("undo generation %d: %w", tried.Generation.Generation, err)
	}
	result, err := n.putBack(context.WithoutCancel(ctx), back, tried.Generation)
	if err != nil {
		return err
	}
	why := fmt.Sprintf("generation %d is undone", tried.Generation.Generation)
	n.recordChanges(result, back.Generation.Generation, why)
	if result.Err != nil {
		n.say("%s: %v", why, result.Err) // it drifts, and the next look mends it
	}
	if step.Act == decide.Withhold {
		n.boot.Live.Without = &state.Without{Overlay: tried.Generation.Overlay, Generation: tried.Generation.Generation, Reason: reason, Kept: tried.Kept}
		n.goBy(tried.Generation)
		if err := n.remember(); err != nil {
			return err
		}
	}
	if to := n.wayBack(s); to != nil {
		if err := n.goTo(*to); err != nil {
			return err
		}
	}
	if step.Act == decide.Forget || step.Act == decide.Withhold && s.Current == nil {
		s.Trial = nil // there is nothing else to run, or nothing that it could be refused for
	} else {
		s.Undo(reason)
	}
	if err := n.folder.SaveVerdict(s); err != nil {
		return err
	}
	if reason != "" {
		n.note(tried.Generation, nil, spec.Event{Event: spec.EventUndone, Transition: step.Name, Why: reason, Did: fmt.Sprintf("undid it; generation %d is in effect", back.Generation.Generation)})
	}
	n.recordStep("undone", events.With("generation", tried.Generation.Generation), events.With("stays", back.Generation.Generation), events.With("why", reason))
	if s.Current == nil {
		return n.endDeadline() // another boot would end the same
	}
	return nil
}

// goTo notes what this root runs now, in place of what it was changed to or came up with.
// What was judged is not in effect any more.
func (n *Node) goTo(g state.Generation) error {
	cameWith, applied := g.Pair(n.boot.Generation), n.boot.Live.Applied
	if applied == nil && cameWith || applied != nil && applied.Same(g) && applied.Pair(g) {
		return nil
	}
	if err := durable.Remove(n.path(paths.RunGates)); err != nil {
		return err
	}
	n.boot.Live.Applied, n.boot.Live.Stuck = &g, ""
	if cameWith {
		n.boot.Live.Applied = nil
	}
	return n.remember()
}

// putBack makes the node as back says, where the tried generation made it otherwise: the
// rest is drift, as it was before.
func (n *Node) putBack(ctx context.Context, back *track.Found, tried state.Generation) (items.Result, error) {
	from, err := n.follower.Recall(&tried)
	limit := n.makingTime(&back.Overlay)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	bounded := func(run func(context.Context) items.Result) items.Result {
		return n.bounded(ctx, fmt.Sprintf("putting generation %d back", back.Generation.Generation), back, 2*limit, run)
	}
	if err != nil { // nobody knows any more what it changed
		result := bounded(func(ctx context.Context) items.Result {
			return items.Reconcile(ctx, n.items(back), n.journal)
		})
		return result, n.counted(n.corrections().Begin(back.Generation.Overlay))
	}
	guard := n.guard(back)
	result := bounded(func(ctx context.Context) items.Result {
		return items.Undo(ctx, n.items(back), n.items(from), n.journal, guard)
	})
	return result, n.moveCorrections(from, back, result)
}

// back returns what this root goes back to, or else what is on trial,
// but with what can cut the node off as it was.
func (n *Node) back(s *state.State) (found *track.Found, err error) {
	if to := n.wayBack(s); to != nil {
		return n.follower.Recall(to)
	}
	if found, err = n.follower.Recall(&s.Trial.Generation); err == nil {
		found.Overlay.Items = found.Overlay.Items.Keeping(s.Trial.Kept)
	}
	return found, err
}

// wayBack returns what this root can go back to from the change on trial: what proved
// itself, or else what it was at before; nil where there is neither.
func (n *Node) wayBack(s *state.State) *state.Generation {
	if best := s.Best(); best != nil && n.runsHere(best.Layer) {
		return best
	}
	if a := n.boot.Live.Applied; a != nil && !s.Trial.Of(*a) && n.runsHere(a.Layer) {
		return a
	}
	return nil
}

// endTrial forgets the trial of a change that was taken back for another reason.
func (n *Node) endTrial() error {
	s, err := n.folder.Load()
	if err != nil || s.Trial == nil {
		return err
	}
	s.Trial = nil
	return n.folder.SaveVerdict(s)
}

func (n *Node) endDeadline() error {
	if err := os.Remove(n.path(paths.RunDeadline)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
