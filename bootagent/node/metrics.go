// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"time"

	"github.com/caisson-os/caisson/bootagent/metrics"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
)

// Why a change was made that no operator and no new generation asked for.
const (
	whyBoot  = "boot"  // the root has just come up: what it lacks is set
	whyAgain = "again" // all was put back before
	whyDrift = "drift" // it was right before
)

// cause says which of these a run of the present overlay is for.
func (n *Node) cause(inEffect bool) string {
	switch {
	case !n.begun():
		return whyBoot
	case !inEffect:
		return whyAgain
	}
	return whyDrift
}

// count counts what a look found that the one before had not. What a root lacks that has
// just come up is no drift.
func (n *Node) count(st *spec.Status, last []spec.Drift) {
	c := &n.boot.Live.Counts
	if n.begun() {
		metrics.CountDrift(c, st.Drift, last)
	}
	metrics.NoteArtifacts(c, st, time.Now())
}

// publishMetrics writes the metrics where the overlay wants them, and removes them
// where it does not want them any more, or wants them where they must not be.
func (n *Node) publishMetrics(found *track.Found, st *spec.Status) error {
	want, wrong := metrics.Wanted(&found.Overlay)
	if err := n.moveMetrics(want.File); err != nil {
		return errors.Join(wrong, err)
	}
	var text []byte
	if want != (spec.Metrics{}) {
		text = metrics.Text(&metrics.Facts{Now: time.Now(), Status: st, Maintenance: found.Overlay.Maintenance, Counts: n.boot.Live.Counts})
	}
	return errors.Join(wrong, metrics.Publish(n.o.Root, want, text), n.o.listen(want.Listen))
}

// moveMetrics removes the file that metrics were written to before, and notes to
// which they are written from now on.
func (n *Node) moveMetrics(to string) error {
	s, err := n.folder.Load()
	if err != nil || s.MetricsFile == to {
		return err
	}
	if s.MetricsFile != "" {
		if err := metrics.Withdraw(n.o.Root, s.MetricsFile); err != nil {
			return err
		}
	}
	s.MetricsFile = to
	return n.folder.Save(s)
}
