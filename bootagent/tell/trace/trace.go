// SPDX-License-Identifier: Apache-2.0

// Package trace notes how long the steps of a boot and of a run take. It measures
// from the start of the kernel, as the kernel's own log does, and does not know
// what the steps are.
package trace

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
	began := Uptime()
	return func(err error) {
		s := spec.Step{Name: name, Start: milliseconds(began), Took: milliseconds(Uptime() - began), Result: spec.StepOK}
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

// Uptime is how long this kernel runs, suspension included.
func Uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0 // every kernel that has openat2 has it
	}
	return time.Duration(now.Nano())
}
