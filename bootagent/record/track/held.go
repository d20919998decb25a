// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Held says why a node does not take a generation that it may, "" where it does. One
// that has nothing else takes what there is. What the fleet lets nobody run, nobody on the
// node can keep.
func (f *Tracker) Held(s *state.State, g state.Generation) string {
	why, not := f.held(s, g)
	if not != nil {
		f.Say("generation %d is not kept: %v", s.Current.Generation, not)
	}
	return why
}

// held is Held that says nothing: not is why a hold does not count.
func (f *Tracker) held(s *state.State, g state.Generation) (why string, not error) {
	if s.Current == nil {
		return "", nil
	}
	now, _ := f.clock(s).Now(time.Time{})
	h := s.HoldAt(now.Unix())
	switch {
	case s.Trial.Of(g) && s.Trial.Pending() && !s.Trial.Begins():
		return "it is not confirmed yet", nil
	case s.Trial.Of(g) && !s.Trial.Pending():
		return "it was undone: " + s.Trial.Reason + "; 'caisson-agent sync --retry' tries it again", nil
	case h == nil:
		return "", nil
	}
	if err := permitted(s, *s.Current); err != nil {
		return "", err
	}
	return state.SayHold(h), nil
}

// Candidate returns the generation that waits and that the node may take, nil where there is none:
// what a loader that asks the registry would begin. It is asked at each look, and says nothing.
func (f *Tracker) Candidate(s *state.State) *state.Generation {
	g := s.Staged
	if g == nil || permitted(s, *g) != nil {
		return nil
	}
	if why, _ := f.held(s, *g); why != "" { // a hold that does not count is said where it is met
		return nil
	}
	return g
}

// permitted returns why the fleet lets nobody run a generation any more. The least
// generation says nothing about that: each publish raises it, against replays of what this
// node proved itself long ago.
func permitted(s *state.State, g state.Generation) error {
	for _, digest := range []string{g.Overlay, g.Layer} {
		if slices.Contains(s.Fleet.Reject, digest) || slices.Contains(s.Rejected, digest) {
			return refusal.New(refusal.Rejected, "%s is on the reject list", digest)
		}
	}
	if least := s.Fleet.Minimum.Epoch; g.Epoch < least {
		return refusal.New(refusal.Epoch, "the fleet accepts nothing of an epoch before %d", least)
	}
	return nil
}

// Return is [Tracker.Recall] for a generation that an operator wants to go back to.
func (f *Tracker) Return(g *state.Generation) (*Found, error) {
	s, err := f.Folder.Load()
	if err != nil {
		return nil, err
	}
	if err := permitted(s, *g); err != nil {
		return nil, fmt.Errorf("generation %d: %w", g.Generation, err)
	}
	return f.recall(s, g, s.Rejected)
}
