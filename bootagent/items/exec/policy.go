// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"cmp"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// retryAfter is the pause after a failure when the config names none.
const retryAfter = 60

// due reports whether w is to run now, and when it is not, in words when it will
// be. Intervals count from the start of the last run.
//
// Without an interval an "always" script runs once a boot; Divingbell ran it
// again every minute, which is what rerunInterval 60 says.
func due(w spec.Exec, r record, boot string, now time.Time) (run bool, next string) {
	policy := cmp.Or(w.Rerun, "always")
	if !r.finished() {
		return true, "" // it never ran, or was cut
	}
	interval, limit, count, forget := w.RerunInterval, w.RerunMax, r.Rerun, w.RerunForget
	if r.Exit != 0 {
		interval, limit, count, forget = cmp.Or(w.RetryInterval, w.RerunInterval, retryAfter), w.RetryMax, r.Retry, w.RetryForget
	}
	switch {
	case policy == "never", policy == "once_successfully" && r.Exit == 0:
		return false, "its policy never repeats it"
	case limit > 0 && count >= limit:
		return false, "it was repeated as often as allowed"
	case r.Boot != boot && (forget || interval == 0):
		return true, ""
	case interval == 0:
		return false, "it is run again at the next boot"
	case interval < 0:
		return false, "it is never repeated by time"
	}
	at := r.Start.Add(time.Duration(min(interval, 1<<32)) * time.Second) // 136 years is no overflow
	if now.Before(r.Start) {
		return true, "" // the clock was set back: better too early than never
	}
	return !now.Before(at), "it is tried again at " + at.UTC().Format(time.RFC3339)
}

// following is the record of a run that starts now after r.
func following(w spec.Exec, r record, boot string) record {
	next := record{Name: w.Name, Keep: w.Once == "per-machine", Rerun: r.Rerun, Retry: r.Retry}
	switch {
	case r.none():
	case r.failed():
		next.Retry++
	case r.finished():
		next.Rerun++
		next.Retry = 0
	}
	return next
}
