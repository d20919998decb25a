// SPDX-License-Identifier: Apache-2.0

package state

import (
	"time"

	"github.com/caisson-os/caisson/spec"
)

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
