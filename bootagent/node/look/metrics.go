// SPDX-License-Identifier: Apache-2.0

package look

import (
	"errors"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/metrics"
	"github.com/caisson-os/caisson/spec"
)

// count counts what a look found that the one before had not. What a root lacks that has
// just come up is not drift.
func (l *Look) count(st *spec.Status, last []spec.Drift) {
	c := &l.Boot.Live.Counts
	if l.Begun() {
		metrics.CountDrift(c, st.Drift, last)
	}
	metrics.NoteArtifacts(c, st, time.Now())
}

// publishMetrics writes the metrics where the overlay wants them, and removes them
// where it does not want them any more, or wants them where they must not be.
func (l *Look) publishMetrics(found *track.Found, st *spec.Status) error {
	want, wrong := metrics.Wanted(&found.Overlay)
	if err := l.MoveMetrics(want.File); err != nil {
		return errors.Join(wrong, err)
	}
	var text []byte
	if want != (spec.Metrics{}) {
		text = metrics.Text(&metrics.Facts{Now: time.Now(), Status: st, Maintenance: found.Overlay.Maintenance, Counts: l.Boot.Live.Counts})
	}
	return errors.Join(wrong, metrics.Publish(l.Options.Root, want, text), l.Options.Listen(want.Listen))
}

// MoveMetrics removes the file that metrics were written to before, and notes to
// which they are written from now on.
func (l *Look) MoveMetrics(to string) error {
	s, err := l.Owner.State()
	if err != nil || s.MetricsFile == to {
		return err
	}
	if s.MetricsFile != "" {
		if err := metrics.Withdraw(l.Options.Root, s.MetricsFile); err != nil {
			return err
		}
	}
	return l.Owner.Commit(record.Change{State: func(s *state.State) { s.MetricsFile = to }})
}
