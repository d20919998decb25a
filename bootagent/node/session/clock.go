// SPDX-License-Identifier: Apache-2.0

package session

import (
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/sense/trial"
	"github.com/caisson-os/caisson/bootagent/sense/window"
	"github.com/caisson-os/caisson/bootagent/tell/trace"
	"github.com/caisson-os/caisson/spec"
)

// Waiting reports whether a change of this boot is in effect and waits for its operator.
func (n *Session) Waiting(s *state.State) bool {
	return s.Trial.Pending() && s.Trial.Boot == n.Scopes.Kernel && s.Trial.Ends != 0
}

// Begun reports whether this root was brought to what its overlay says at least
// once: a pause is for a machine that runs, not for one that comes up.
func (n *Session) Begun() bool { return n.Last().RootID == n.Scopes.Root }

// Seconds are the whole ones of a duration.
func Seconds(d time.Duration) int64 { return int64(d / time.Second) }

// Start is the id of what this machine's init started last: a soft-reboot starts all of
// it again, and the kernel goes on.
func (n *Session) Start() string {
	if n.Boot.Mode == spec.ModeAttached || n.Boot.Upper == "" {
		return n.Scopes.Kernel
	}
	return n.Scopes.Root
}

// Now is the time by which windows are judged.
func (n *Session) Now() time.Time {
	if n.Options.Clock != nil {
		return n.Options.Clock()
	}
	return time.Now()
}

// clock tells how long the kernel runs, however the other one is set.
func (n *Session) clock() trial.Clock {
	if n.Options.Kernel != nil {
		return n.Options.Kernel
	}
	return trial.Kernel{Uptime: trace.Uptime}
}

// Up is how long this kernel runs.
func (n *Session) Up() time.Duration { return n.clock().Up() }

// Synchronised reports whether that time is to be trusted.
func (n *Session) Synchronised() bool { return n.Options.Clock != nil || window.Synchronised() }
