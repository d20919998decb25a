// SPDX-License-Identifier: Apache-2.0

package say

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/internal/durable"
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
		i, ok := gate.Coming(w, now)
		if ok && (next == nil || i.From.Before(next.From) || i.From.Equal(next.From) && name < next.Name) {
			next = &spec.NextWindow{Name: name, Interval: i}
		}
	}
	return next
}

// Nothing is the status of a node that cannot say what it runs; trouble says why, nil
// where it runs nothing yet.
func Nothing(b *state.Boot, fleet string, trouble error) *spec.Status {
	st := &spec.Status{Node: b.Node, Fleet: fleet, Mode: b.Mode, Health: spec.HealthOK, Sync: b.Sync, SyncDetail: b.SyncDetail}
	if trouble != nil {
		st.Health = spec.HealthDegraded
		st.Drift = []spec.Drift{{Item: "overlay", Key: "running", Action: spec.ActionRefuse, Reason: trouble.Error()}}
	}
	return st
}

// Why says what is wrong with a node of a status. events are those of its black box,
// oldest first; trouble says why they are not all of them.
func Why(st *spec.Status, b *state.Boot, events []spec.Event, trouble error) spec.Why {
	w := explain(st, events)
	w.Memory, w.Events = b.Disk == "" && b.Mode != spec.ModeAttached || b.ReadOnly, events
	if trouble != nil {
		w.Trouble = trouble.Error()
	}
	return w
}

// KeepTrace keeps the steps of a run in a file: as the first ones of this root, or else as
// the last. A trace that cannot be read is begun again, and said.
func KeepTrace(file string, steps []spec.Step, first bool, say func(format string, args ...any)) error {
	var t spec.Trace
	if first {
		t.First = steps
	} else {
		var err error
		if t, err = ReadTrace(file); err != nil {
			say("the trace of this boot starts over: %v", err)
			t = spec.Trace{}
		}
		t.Last = steps
	}
	data, err := spec.Encode(t)
	if err != nil {
		return err
	}
	return durable.WriteFile(file, data, 0o640)
}

// ReadTrace reads what KeepTrace kept, the zero value where that is nothing.
func ReadTrace(file string) (t spec.Trace, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		return t, fmt.Errorf("read trace: %w", err)
	}
	return t, nil
}
