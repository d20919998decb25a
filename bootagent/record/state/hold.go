// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"slices"

	"github.com/caisson-os/caisson/spec"
)

// HoldAt returns what an operator on this node has it keep at a time in seconds since
// 1970, nil where it follows.
func (s *State) HoldAt(now int64) *spec.Hold {
	switch {
	case s.Tracking == spec.Following:
		return nil
	case s.Hold == nil: // frozen, and nothing says why
		return &spec.Hold{Kind: spec.HoldFreeze, Since: s.TrackingSince}
	case s.Hold.Until != 0 && s.Hold.Until <= now:
		return nil
	}
	return s.Hold
}

// PauseAt returns an operator's pause at a time in seconds since 1970, nil without one.
func (s *State) PauseAt(now int64) *spec.Hold {
	if s.Paused == nil || s.Paused.Until != 0 && s.Paused.Until <= now {
		return nil
	}
	return s.Paused
}

// Keep has the node keep what it has, for the reason that h gives. An agent that knows no
// holds takes it for frozen.
func (s *State) Keep(h spec.Hold) {
	s.Hold, s.Tracking, s.TrackingSince = &h, spec.Frozen, h.Since
}

// Follow ends that.
func (s *State) Follow(now int64) {
	if s.Tracking != spec.Following {
		s.Hold, s.Tracking, s.TrackingSince = nil, spec.Following, now
	}
}

// maxEarlier is how many good generations are kept beside the current one.
const maxEarlier = 5

// Kept are the generations that this node has run well and can go back to, newest first.
func (s *State) Kept() []Generation {
	var kept []Generation
	for _, g := range append([]*Generation{s.Current, s.Previous}, pointers(s.Earlier)...) {
		if g != nil && !slices.ContainsFunc(kept, func(k Generation) bool { return k.Overlay == g.Overlay }) {
			kept = append(kept, *g)
		}
	}
	slices.SortFunc(kept, func(a, b Generation) int {
		return cmp.Or(cmp.Compare(b.Epoch, a.Epoch), cmp.Compare(b.Generation, a.Generation))
	})
	return kept
}

func pointers(list []Generation) []*Generation {
	var out []*Generation
	for i := range list {
		out = append(out, &list[i])
	}
	return out
}

// Forget forgets the generations that ran well before the current one, but for those that
// stay, and returns how many.
func (s *State) Forget(stay ...Generation) (gone int) {
	forgets := func(g Generation) bool {
		return !slices.ContainsFunc(stay, func(k Generation) bool { return k.Overlay == g.Overlay })
	}
	if s.Previous != nil && forgets(*s.Previous) {
		s.Previous, gone = nil, 1
	}
	before := len(s.Earlier)
	s.Earlier = slices.DeleteFunc(s.Earlier, forgets)
	return gone + before - len(s.Earlier)
}

// Return makes one of the kept generations the current one. What was rejected stays known,
// and nothing else waits.
func (s *State) Return(to Generation, here ...string) {
	s.replace(to, here)
	if s.Staged != nil && !s.Staged.Rejected() {
		s.Staged = nil
	}
}

// replace makes a generation the current one. Those before it stay, as far as their layer
// does: that of the current one, the one before, and what the running root can have as it is.
func (s *State) replace(by Generation, here []string) {
	before := s.Kept()
	if s.Current != nil && s.Current.Layer != by.Layer {
		s.Previous = s.Current
	}
	s.Current, s.Earlier, s.Ahead = &by, nil, nil
	for _, g := range before {
		stays := g.Layer == by.Layer || slices.Contains(here, g.Layer) || s.Previous != nil && g.Layer == s.Previous.Layer
		if stays && g.Overlay != by.Overlay && len(s.Earlier) < maxEarlier {
			s.Earlier = append(s.Earlier, g)
		}
	}
}

// SayHold says why a node keeps what it has.
func SayHold(h *spec.Hold) string {
	text := map[string]string{spec.HoldPin: "pinned", spec.HoldRollback: "rolled back"}[h.Kind]
	if text == "" {
		text = "frozen"
	}
	text = "this node is " + text
	if h.Author != "" {
		text += " by " + h.Author
	}
	if h.Reason != "" {
		text += ": " + h.Reason
	}
	return text
}
