// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/bootagent/trial"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust/refusal"
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
	clock := trial.Kernel{Uptime: uptime}
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

// begin saves that a change is on trial, before anything of it is made. Where it can
// neither cut the node off nor waits for anybody, there is no trial.
func (n *Node) begin(before, next *track.Found) (*state.Trial, error) {
	from := &spec.Items{}
	if before != nil {
		from = &before.Overlay.Items
	}
	cuts := spec.CutsOff(from, &next.Overlay.Items)
	if len(cuts) == 0 {
		return nil, nil
	}
	s, err := n.folder.Load()
	if err != nil {
		return nil, err
	}
	s.Trial = &state.Trial{Generation: next.Generation, Confirm: state.ByReach, Boot: n.scopes.Kernel, Within: int64(n.within() / time.Second), Since: time.Now().Unix()}
	if err := n.folder.Save(s); err != nil {
		return nil, fmt.Errorf("a change that can cut this node off is not begun: %w", err)
	}
	n.record("trial", field{"generation", next.Generation.Generation}, field{"confirm", s.Trial.Confirm}, field{"why", "it changes " + strings.Join(cuts, ", ")})
	return s.Trial, nil
}

// prove ends a trial whose change is made: it stands, or it is undone.
func (n *Node) prove(ctx context.Context, next *track.Found, result items.Result) (*spec.Status, error) {
	lost := n.reached(ctx, n.within())
	switch {
	case lost == nil:
		return n.moved(ctx, next, result)
	case ctx.Err() != nil: // it was not the change that failed: the next start tries it again
		return nil, errors.Join(ctx.Err(), n.undo(ctx, ""))
	}
	if err := n.undo(ctx, "after it "+lost.Error()); err != nil {
		return nil, err
	}
	n.setSync(spec.SyncBehind, fmt.Sprintf("generation %d was undone: after it %v", next.Generation.Generation, lost))
	failed := fmt.Errorf("generation %d was undone: after it %w", next.Generation.Generation, lost)
	if err := n.remember(); err != nil {
		return nil, errors.Join(failed, err)
	}
	found, err := n.running()
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	status, err := n.report(found, items.Look(ctx, n.items(found.Overlay.Items), n.guard(found)))
	return status, errors.Join(failed, err)
}

// settle undoes a change whose trial went wrong while nobody looked.
func (n *Node) settle(ctx context.Context) error {
	if n.follower == nil {
		return nil
	}
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	if verdict, why := trial.Judge(s.Trial, n.scopes.Kernel, uptime()); verdict == trial.Undo {
		return n.undo(ctx, why)
	}
	return nil
}

// undo takes the change on trial back and then says so: cut in between, it is undone
// once more. Without a reason, the generation is not held against itself.
//
// The node goes on with what it knows to be good. Where that is nothing, or needs
// another root, it goes on with the generation, but without what can cut it off.
func (n *Node) undo(ctx context.Context, reason string) error {
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	tried := s.Trial
	back, whole, err := n.back(s)
	if err != nil {
		return fmt.Errorf("undo generation %d: %w", tried.Generation.Generation, err)
	}
	result := items.Reconcile(context.WithoutCancel(ctx), n.items(back.Overlay.Items), n.journal)
	why := fmt.Sprintf("generation %d is undone", tried.Generation.Generation)
	n.recordChanges(result, back.Generation.Generation, why)
	if result.Err != nil {
		n.o.Say("%s: %v", why, result.Err) // it drifts, and the next look mends it
	}
	if !whole && reason != "" {
		n.boot.Live.Without = &state.Without{Overlay: tried.Generation.Overlay, Generation: tried.Generation.Generation, Reason: reason}
		n.boot.Generation = tried.Generation
		if err := n.remember(); err != nil {
			return err
		}
	}
	if s.Current == nil || reason == "" {
		s.Trial = nil // there is nothing else to run, or nothing that it could be refused for
	} else {
		s.Undo(reason)
	}
	if err := n.folder.Save(s); err != nil {
		return err
	}
	n.record("undone", field{"generation", tried.Generation.Generation}, field{"stays", back.Generation.Generation}, field{"why", reason})
	if s.Current == nil {
		return n.endDeadline() // another boot would end the same
	}
	return nil
}

// back returns what this root can go back to, and whether that is all of an overlay.
func (n *Node) back(s *state.State) (found *track.Found, whole bool, err error) {
	if c := s.Current; c != nil && (c.Layer == n.boot.Generation.Layer || n.boot.Mode == spec.ModeAttached) {
		found, err = n.follower.Recall(c)
		return found, true, err
	}
	if found, err = n.follower.Recall(&s.Trial.Generation); err == nil {
		found.Overlay.Items = found.Overlay.Items.Harmless()
	}
	return found, false, err
}

// comeUp applies a generation that nobody has proven yet to a root that has come up. Of
// a machine that cannot be reached before it, nobody could say what cut it off.
func (n *Node) comeUp(ctx context.Context, found *track.Found) (*spec.Status, error) {
	if len(spec.CutsOff(&spec.Items{}, &found.Overlay.Items)) > 0 {
		if err := n.reached(ctx, n.within()/6); err != nil {
			n.o.Say("what could cut this node off is applied untested: %v", err)
			return n.enforce(ctx, found)
		}
	}
	t, err := n.begin(nil, found)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return n.enforce(ctx, found)
	}
	result := items.Reconcile(ctx, n.items(found.Overlay.Items), n.journal)
	if err := n.corrections().Begin(found.Generation.Overlay); err != nil {
		return nil, err
	}
	st, err := n.prove(ctx, found, result)
	if st != nil && err != nil { // the node goes on, and its status says how
		n.o.Say("%v", err)
		err = nil
	}
	return st, err
}

// unproven reports whether this root has come up with a generation that was never in
// effect.
func (n *Node) unproven(found *track.Found) (bool, error) {
	if n.begun() || n.boot.Mode == spec.ModeAttached {
		return false, nil
	}
	s, err := n.folder.Load()
	return err == nil && s.Staged != nil && s.Staged.Overlay == found.Generation.Overlay, err
}

// partial reports whether the node runs a generation without what could cut it off.
func (n *Node) partial(g state.Generation) bool {
	w := n.boot.Live.Without
	return w != nil && w.Overlay == g.Overlay
}

// waiting reports whether a change of this boot is in effect and waits for its operator.
func (n *Node) waiting(s *state.State) bool {
	return s.Trial.Pending() && s.Trial.Boot == n.scopes.Kernel && s.Trial.Ends != 0
}

func (n *Node) waits() (bool, error) {
	s, err := n.folder.Load()
	return err == nil && n.waiting(s), err
}

// endTrial forgets the trial of a change that was taken back for another reason.
func (n *Node) endTrial() error {
	s, err := n.folder.Load()
	if err != nil || s.Trial == nil {
		return err
	}
	s.Trial = nil
	return n.folder.Save(s)
}

// shown is a trial as the status has it.
func shown(t *state.Trial) *spec.Trial {
	st := &spec.Trial{Generation: t.Generation.Generation, Overlay: t.Generation.Overlay, Confirm: string(t.Confirm), Since: stamp(t.Since), Undone: t.Reason}
	if t.Ends != 0 {
		st.Left = int64(max(0, trial.Left(t, uptime())) / time.Second)
	}
	return st
}

func (n *Node) endDeadline() error {
	if err := os.Remove(n.path(paths.RunDeadline)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
