// SPDX-License-Identifier: Apache-2.0

package say

import (
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/sense/window"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Reporting returns where a node reports to, nil where its overlay says nothing of
// reports.
func Reporting(o *spec.Overlay) (*spec.Reporting, error) {
	if o.Agent == nil || o.Agent.Report == nil {
		return nil, nil
	}
	if err := rules.Reporting(*o.Agent.Report); err != nil {
		return nil, fmt.Errorf("agent.report of the overlay: %w", err)
	}
	return o.Agent.Report, nil
}

// Report returns what a node tells its fleet of a status. m are the windows of its
// overlay, nil where it has none.
func Report(st *spec.Status, to *spec.Reporting, m *spec.Maintenance, now time.Time) *spec.Report {
	r := spec.NewReport(st)
	r.Interval, r.NextWindow = to.Interval, nextWindow(m, now)
	return r
}

// nextWindow is the one that is open, or opens first.
func nextWindow(m *spec.Maintenance, now time.Time) (next *spec.NextWindow) {
	if m == nil {
		return nil
	}
	for name, w := range m.Windows {
		i, ok := window.Coming(w, now)
		if ok && (next == nil || i.From.Before(next.From) || i.From.Equal(next.From) && name < next.Name) {
			next = &spec.NextWindow{Name: name, Interval: i}
		}
	}
	return next
}
