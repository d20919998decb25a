// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"cmp"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// pace is how long a script without an interval waits for its next run in the same boot,
// also after a failure: as in Divingbell, which began its next pass about a minute after
// the last one, and at the start of a pod at once.
const pace = 60

// due reports whether w is to run now, and when it is not, in words when it will
// be. Intervals count from the start of the last run, also over boots unless the
// config forgets them; counts are those of one boot.
func due(w spec.Exec, r record, boot string, now time.Time) (run bool, next string) {
	if !r.finished() {
		return true, "" // it never ran, or was cut
	}
	interval, limit, count, forget := w.RerunInterval, w.RerunMax, r.Rerun, w.RerunForget
	if r.Exit != 0 {
		interval, limit, count, forget = cmp.Or(w.RetryInterval, w.RerunInterval), w.RetryMax, r.Retry, w.RetryForget
	}
	switch {
	case w.Rerun == "never", w.Rerun == "once_successfully" && r.Exit == 0:
		return false, "its policy never repeats it"
	case limit > 0 && count >= limit && r.Boot == boot:
		return false, "it was repeated as often as allowed"
	case r.Boot != boot && (forget || interval == 0):
		return true, ""
	case interval < 0:
		return false, "it is never repeated by time"
	}
	at := r.Start.Add(time.Duration(min(cmp.Or(interval, pace), 1<<32)) * time.Second) // 136 years do not overflow
	if now.Before(r.Start) {
		return true, "" // the clock was set back: better too early than never
	}
	return !now.Before(at), "it is tried again at " + at.UTC().Format(time.RFC3339)
}

// lasts reports whether a record counts on another root too: for the machine if
// the config says so, and for as long as an interval goes on.
func lasts(w spec.Exec, r record) bool {
	if w.Once == "per-machine" {
		return true
	}
	interval := w.RerunInterval
	if r.failed() {
		interval = w.RetryInterval
	}
	return (w.Rerun == "" || w.Rerun == "always") && interval > 0
}

// following is the record of a run that starts now after r.
func following(w spec.Exec, r record, boot string) record {
	next := record{Name: w.Name, Keep: w.Once == "per-machine"}
	if r.Boot == boot {
		next.Rerun, next.Retry = r.Rerun, r.Retry
	}
	switch {
	case r.none() || r.Boot != boot:
	case r.failed():
		next.Retry++
	case r.finished():
		next.Rerun++
		next.Retry = 0
	}
	return next
}
