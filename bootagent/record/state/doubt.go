// SPDX-License-Identifier: Apache-2.0

package state

import (
	"slices"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// Doubt notes that a generation is rejected or undone since the registry was not reached with
// it. The caller has not noted that yet.
func (s *State) Doubt(g Generation) {
	if s.Staged != nil && s.Staged.Same(g) {
		g = *s.Staged
	}
	s.Doubted = &g
}

// Absolve forgets the reason for which a generation that is doubted was rejected or undone:
// what ran before does not reach the registry either. Its boots stay counted.
func (s *State) Absolve() {
	g := s.Doubted
	if s.Trial.Of(*g) && !s.Trial.Pending() {
		s.Trial = nil
	}
	if s.Staged != nil && s.Staged.Same(*g) {
		s.Staged = g
	}
	s.Doubted = nil
}

// Back returns the generation that a boot goes back to from another: the newest other one that a
// boot has proved, or else the newest that proved itself; nil where there is none.
func (s *State) Back(from Generation) *Generation {
	if g := s.booted(from); g != nil {
		return g
	}
	if best := s.Best(); best != nil && !best.Pair(from) {
		return best
	}
	return nil
}

// GoBack rejects a generation, and has what it goes back to be current, also where something
// newer proved itself on a running root alone.
func (s *State) GoBack(from, to Generation, why string, now time.Time, here ...string) {
	s.Reject(from, why, now)
	if best := s.Best(); best != nil && !best.Pair(to) {
		s.Return(to, here...)
	}
}

// booted is the newest generation but one that a boot has proved, of those that a loader goes
// back to.
func (s *State) booted(but Generation) *Generation {
	for _, g := range append(s.Generations(), pointers(s.Earlier)...) {
		if g != s.Staged && g.Unread == "" && !g.Pair(but) {
			return g
		}
	}
	return nil
}

// Fallbacks are the generations that a loader goes back to where another one failed, best
// first: what no boot has proved may have failed of the same.
func (s *State) Fallbacks() []*Generation {
	list := s.Generations()
	g := s.booted(Generation{})
	if g == nil {
		return list
	}
	return append([]*Generation{g}, slices.DeleteFunc(list, func(l *Generation) bool { return l.Pair(*g) })...)
}

// Retest has what proved itself on a running root alone prove itself by the boot that begins
// with it: it is staged again, and what a boot has proved is current, also where the boot begins
// with that. It reports whether anything changed: nothing does on a node that is held, or
// without a way back.
func (s *State) Retest(g Generation) bool {
	best, back := s.Best(), s.booted(Generation{})
	if best == nil || best.Unread == "" || best.IsAhead() || back == nil || s.Tracking != spec.Following || !best.Pair(g) && !back.Pair(g) {
		return false
	}
	tested, to := *best, *back
	s.Return(to)
	if tested.Pair(g) {
		tested.Unread, tested.Attempts = "", 0
		s.Staged = &tested
		s.Earlier = slices.DeleteFunc(s.Earlier, func(e Generation) bool { return e.Overlay == g.Overlay })
	}
	return true
}
