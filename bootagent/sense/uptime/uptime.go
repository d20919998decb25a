// SPDX-License-Identifier: Apache-2.0

// Package uptime measures time from the start of the kernel, as the kernel's own log does: a clock
// that is set meanwhile says nothing. [Recorder] notes how long the steps of a boot and of a run
// take, and does not know what the steps are.
//
// A deadline is a file for which systemd starts a machine over: it is there for
// as long as a new generation has not proved itself, see bootagent/boot/handover. In it is
// how long scripts have run in this boot, and which one runs: they have timeouts of their
// own, so the deadline counts none of that time, and none of scripts that have ended or were
// never begun.
//
//	BeginDeadline  the loader, or a soft-reboot
//	BeginScript    an item that waits for a script
//	DeadlineOver   systemd's timer asks
//	EndDeadline    the node, when the generation is applied and judged, or proved itself
//
// While a change is judged a second file bounds the agent in the same way: each look renews it.
package uptime

import (
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
)

// Recorder collects steps in the order in which they end. The zero value is ready;
// it is for one goroutine.
type Recorder struct{ steps []spec.Step }

// most bounds the steps of one recorder: a boot that cannot reach its registry tries
// again and again. The first ones and the last one are kept.
const most = 200

// Begin begins a step; calling end ends it, with what went wrong, if anything.
func (r *Recorder) Begin(name string) (end func(error)) {
	began := Now()
	return func(err error) {
		s := spec.Step{Name: name, Start: milliseconds(began), Took: milliseconds(Now() - began), Result: spec.StepOK}
		if err != nil {
			s.Result = err.Error()
		}
		if len(r.steps) == most {
			r.steps = r.steps[:most-1]
		}
		r.steps = append(r.steps, s)
	}
}

// Bytes notes what the step that ended last brought, if anything.
func (r *Recorder) Bytes(b spec.Bytes) {
	if len(r.steps) > 0 && b != (spec.Bytes{}) {
		r.steps[len(r.steps)-1].Bytes = &b
	}
}

// Steps returns what has ended so far.
func (r *Recorder) Steps() []spec.Step { return r.steps }

func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*1000) / 1000
}

// Now is how long this kernel runs, suspension included.
func Now() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0 // every kernel that has openat2 has it
	}
	return time.Duration(now.Nano())
}
