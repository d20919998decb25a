// SPDX-License-Identifier: Apache-2.0

package say

import (
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/why"
	"github.com/caisson-os/caisson/spec"
)

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
	w := why.Explain(st, events)
	w.Memory, w.Events = b.Disk == "" && b.Mode != spec.ModeAttached || b.ReadOnly, events
	if trouble != nil {
		w.Trouble = trouble.Error()
	}
	return w
}
