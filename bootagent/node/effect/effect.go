// SPDX-License-Identifier: Apache-2.0

// Package effect says what is in effect on a node: the overlay that its root runs, verified
// again, the items that this leads to, what is corrected of them and what is left alone, and
// how long a run of them may take. It decides nothing about generations.
package effect

import (
	"errors"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/decide/policy"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/say"
	"github.com/caisson-os/caisson/spec"
)

// Effect puts generations into effect on an open node.
type Effect struct {
	Table
	Unbound error              // why there is no Tracker: no key is trusted
	Last    func() spec.Status // after the last run, the zero one when there was none
	Clock   Clock
	Made    time.Duration           // that a change has to be made, beside what its scripts take; 0 is five minutes, and one for each program
	Within  time.Duration           // that a change has to prove that the node is still reached
	Rival   func(spec.Drift) string // who made a drift so; "": nobody knows

	book *policy.Book // opened when it is asked for
}

// Clock is the time of a node.
type Clock interface {
	Up() time.Duration  // since the kernel started
	Now() time.Time     // by which windows are judged
	Synchronised() bool // it may be
}

// Begun reports whether this root was brought to what its overlay says at least once: a pause is
// for a machine that runs, not for one that comes up.
func (ef *Effect) Begun() bool { return ef.Last().RootID == ef.Scopes.Root }

// Runs returns the generation that this root runs, nil where it runs none.
func (ef *Effect) Runs(s *state.State) *state.Generation {
	boot := ef.Owner.Boot()
	return decide.Runs(s, boot.Generation, boot.Live.Applied, ef.Scopes.Kernel, ef.Root.RunsHere)
}

// PausedBy says why nothing may be changed now, "" where it may. A machine that comes up is
// brought to what its overlay says.
func (ef *Effect) PausedBy(found *track.Found) (string, error) {
	if found == nil || !ef.Begun() {
		return "", nil
	}
	p, err := ef.Pause(found)
	if err != nil || p == nil {
		return "", err
	}
	return say.Pause(p), nil
}

// Running returns the overlay that this root runs, verified again.
func (ef *Effect) Running() (*track.Found, error) {
	if ef.Tracker == nil {
		return nil, ef.Unbound
	}
	s, err := ef.Owner.State()
	if err != nil {
		return nil, err
	}
	g := ef.Runs(s)
	if g == nil {
		return nil, track.ErrNothing
	}
	found, err := ef.Tracker.Recall(g)
	if err != nil && g.IsAhead() && s.Current != nil && s.Current.Layer == g.Layer {
		// A newer signature of it may leave this layer out.
		ef.Log.Say("what runs is not signed for this layer any more: %v", err)
		g = s.Current
		found, err = ef.Tracker.Recall(g)
	}
	if w := ef.Owner.Boot().Live.Without; err == nil && w != nil && w.Overlay == g.Overlay {
		found.Overlay.Items = found.Overlay.Items.Keeping(w.Kept)
	}
	return found, err
}

// Found is running where nothing that runs is not an error.
func (ef *Effect) Found() (*track.Found, error) {
	found, err := ef.Running()
	if errors.Is(err, track.ErrNothing) {
		return nil, nil
	}
	return found, err
}

// Pause returns the pause of this node, nil when there is none or it is over: an
// operator's here, or the fleet's. The newest overlay that was accepted says what the
// fleet wants, also one that waits for a reboot.
func (ef *Effect) Pause(found *track.Found) (*spec.Hold, error) {
	s, err := ef.Owner.State()
	if err != nil {
		return nil, err
	}
	if p := s.PauseAt(time.Now().Unix()); p != nil {
		return p, nil
	}
	if s.Staged != nil && s.Staged.Overlay != found.Generation.Overlay && decide.Older(found.Generation, *s.Staged) {
		if staged, err := ef.Tracker.Recall(s.Staged); err == nil { // one that was lost pauses nothing
			found = staged
		}
	}
	p := found.Overlay.Pause
	if p == nil || p.Until != 0 && p.Until <= time.Now().Unix() {
		return nil, nil
	}
	return &spec.Hold{Kind: spec.HoldPause, Author: fleet, Reason: p.Reason, Until: p.Until}, nil
}

// fleet is who pauses a node by its overlay.
const fleet = "the fleet"
