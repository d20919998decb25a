// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// MaxAttempts is how many boots of a generation may be begun before a node goes back to
// what it knows to be good; the last may end behind its kexec.
const MaxAttempts = 3

// MaxEarly is how many boots in a row may set what is there before services start, and not get
// as far as the agent.
const MaxEarly = 2

// Accept notes that g was accepted and raises the floor to it. The caller saves
// before it acts on g: the floor must be on disk first.
//
// A raised epoch, which needs the epoch key, is the way out of every number that
// was signed by mistake or by a thief: the generations and dates of the epoch
// before do not count any more. What was rejected stays rejected.
func (s *State) Accept(g Generation) {
	if s.Current != nil && s.Current.Same(g) {
		s.Staged = nil
	} else {
		if s.Staged != nil && s.Staged.Same(g) { // a newer generation is to be tried, whatever came of the same content before
			g.Attempts, g.Failed, g.FailedAt, g.Again, g.FailedAhead = s.Staged.Attempts, s.Staged.Failed, s.Staged.FailedAt,
				s.Staged.Again, s.Staged.FailedAhead
		}
		s.Staged = &g
	}
	if g.Epoch > s.Floor.Epoch {
		s.Newest = 0
		if s.Fleet.Minimum.Epoch < g.Epoch {
			s.Fleet.Issued = 0
		}
	}
	if g.Floor().Compare(s.Floor) > 0 {
		s.Floor, s.AtFloor = g.Floor(), g.Overlay
		s.Lost = nil // what came after is whole
	}
}

// BeginAt raises the floor to an epoch that was accepted elsewhere, and forgets what was accepted
// before it, with the dates of then.
func (s *State) BeginAt(epoch uint64) {
	s.Floor, s.AtFloor, s.Newest = spec.Floor{Epoch: epoch}, "", 0
	if s.Fleet.Minimum.Epoch < epoch {
		s.Fleet.Issued = 0
	}
	s.Current, s.Previous, s.Staged, s.Ahead, s.Earlier, s.Trial, s.Doubted = nil, nil, nil, nil, nil, nil, nil
}

// Promote notes that the staged generation is good; see Prove.
func (s *State) Promote(here ...string) {
	if s.Staged != nil {
		s.Prove(*s.Staged, here...)
	}
}

// Prove notes that g is good. What was accepted since, and is not proven, stays staged; so
// does what has proved itself on another layer than its own. Of what was good before, that on
// the layer before is kept, and that on a layer that is here: one that the running root can
// have as it is.
func (s *State) Prove(g Generation, here ...string) {
	g.Attempts, g.Failed, g.FailedAt, g.Again, g.FailedAhead = 0, "", 0, 0, ""
	if s.Staged != nil && s.Staged.Overlay == g.Overlay && !g.IsAhead() {
		s.Staged = nil
	}
	if t := s.Trial; t != nil && t.Generation.Floor().Compare(g.Floor()) <= 0 {
		s.Trial = nil
	}
	if d := s.Doubted; d != nil && d.Floor().Compare(g.Floor()) <= 0 {
		s.Doubted = nil
	}
	if g.IsAhead() {
		s.Ahead = &g
		return
	}
	s.replace(g, here)
}

// Reject notes that what is staged must not be begun again until an operator says so or a
// newer generation is there. Its attempts are used up, so that a loader passes it over, too.
// What failed on a layer that is not its own may come up on that one.
func (s *State) Reject(g Generation, why string, now time.Time) {
	switch {
	case s.Staged == nil || !s.Staged.Same(g):
	case g.IsAhead():
		s.Staged.FailedAhead = why
	default:
		s.Staged.Attempts, s.Staged.Failed, s.Staged.FailedAt, s.Staged.Again = MaxAttempts, why, now.Unix(), 0
	}
}

// busyFor is how long a change that met something in use, or a full disk, is left alone.
const busyFor = time.Hour

// Postpone notes that what is staged failed for a reason that may go away: it is tried again
// in an hour, and by the next boot.
func (s *State) Postpone(g Generation, why string, now time.Time) {
	if s.Staged != nil && s.Staged.Same(g) {
		s.Staged.Failed, s.Staged.FailedAt, s.Staged.Again = why, now.Unix(), now.Add(busyFor).Unix()
	}
}

// TryAgain forgets why a generation failed whose time to be tried again has come.
func (s *State) TryAgain(g Generation) {
	if s.Staged != nil && s.Staged.Same(g) && s.Staged.Again != 0 {
		s.Staged.Failed, s.Staged.FailedAt, s.Staged.Again = "", 0, 0
	}
}

// Retry forgets that a generation was rejected, and returns which and why, nil for none.
func (s *State) Retry() (what *Generation, why string) {
	if s.Trial != nil && !s.Trial.Pending() {
		what, why, s.Trial = &s.Trial.Generation, s.Trial.Reason, nil
	}
	if g := s.Staged; g != nil && (g.Attempts > 0 || g.Failed != "" || g.FailedAhead != "") {
		what, why = g, cmp.Or(g.Failed, g.FailedAhead, fmt.Sprintf("%d boots of it were begun", g.Attempts))
		g.Attempts, g.Failed, g.FailedAt, g.Again, g.FailedAhead = 0, "", 0, 0, ""
	}
	s.Doubted = nil
	return what, why
}

// Doubt notes that a generation is rejected or undone since the registry was not reached with
// it. The caller has not noted that yet.
func (s *State) Doubt(g Generation) {
	if s.Staged != nil && s.Staged.Same(g) {
		g = *s.Staged
	}
	s.Doubted = &g
}

// Tells reports whether what runs ran before what is doubted, so that its way to the registry tells
// of that: another publication, or the same one that proved itself on the layer before.
func (s *State) Tells(runs *Generation) bool {
	return s.Doubted != nil && runs != nil && (!runs.Same(*s.Doubted) || s.Ahead != nil && s.Ahead.Pair(*runs))
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
	return plain.First(append(s.Generations(), pointers(s.Earlier)...), func(g *Generation) bool {
		return g != s.Staged && g.Unread == "" && !g.Pair(but)
	})
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

// Trial is a generation that is in effect only until it is clear that it did no harm,
// or that was undone since it was not. It is saved before the first setting is changed:
// a process that finds one that is neither confirmed nor waited for undoes it.
type Trial struct {
	Generation Generation `json:"generation"`
	Confirm    Confirm    `json:"confirm"`
	Boot       string     `json:"boot"`             // id of the boot that it began in
	Within     int64      `json:"within"`           // seconds that there are to confirm it
	Ends       int64      `json:"ends,omitempty"`   // seconds of uptime; 0 while it is being applied and tested
	Since      int64      `json:"since"`            // seconds since 1970
	Reason     string     `json:"reason,omitempty"` // why it was undone; "" until then

	// Early says that it was begun before this root's services started. What was not set there, or
	// was cut, the agent makes.
	Early bool `json:"early,omitempty"`

	// Kept is how it was set, where the originals are older than the trial and nothing
	// good is there to go back to.
	Kept spec.Items `json:"kept,omitzero"`
}

// Confirm names a way to confirm a trial.
type Confirm string

// Ways to confirm one.
const (
	ByReach    Confirm = "reach"    // the registry can still be reached
	ByOperator Confirm = "operator" // somebody says so
)

// Of reports whether the trial is of a generation.
func (t *Trial) Of(g Generation) bool {
	return t != nil && t.Generation.Epoch == g.Epoch && t.Generation.Generation == g.Generation && t.Generation.Overlay == g.Overlay
}

// Pending reports whether the trial has no outcome yet.
func (t *Trial) Pending() bool { return t != nil && t.Reason == "" }

// Begins reports whether a boot has begun it before its services started, and no agent has come after.
// Where that boot has ended, so has the trial: it was one attempt of the generation.
func (t *Trial) Begins() bool { return t.Pending() && t.Early }

// Left is how much time there is to confirm a trial that waits, up after the kernel began.
func (t *Trial) Left(up time.Duration) time.Duration {
	return time.Duration(t.Ends)*time.Second - up
}

// Undo notes that what is on trial was undone. It stays, so that it is not taken again.
func (s *State) Undo(reason string) {
	s.Trial.Reason, s.Trial.Ends = reason, 0
	if s.Staged != nil && s.Trial.Of(*s.Staged) {
		s.Staged = nil
	}
}

// Confirm notes that what is on trial is good; see Prove.
func (s *State) Confirm(here ...string) {
	good, next := s.Trial.Generation, s.Staged
	if good.IsAhead() {
		s.Prove(good, here...)
		return
	}
	s.Staged = &good
	s.Promote(here...)
	if next != nil && (next.Overlay != good.Overlay || next.Generation != good.Generation) {
		s.Staged = next // it came meanwhile
	}
}
