// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/spec"
)

// Compared notes what the comparison with what ran before has told of what is doubted.
func (so *Soak) Compared(absolved bool, why string) error {
	var g state.Generation
	did := "keeps it rejected"
	err := so.Owner.Commit(record.Change{Urgent: record.Verdict, State: func(s *state.State) {
		g = *s.Doubted
		if absolved {
			did = "does not hold it against the generation, and takes it again when the registry answers"
			s.Absolve()
		}
		s.Doubted = nil
	}})
	if err != nil {
		return err
	}
	so.RecordStep("compared", events.With("generation", g.Generation), events.With("overlay", g.Overlay), events.With("why", why))
	so.Note(g, nil, spec.Event{Event: spec.EventCompared, Transition: so.Transition, Why: why, Did: did})
	so.Say("generation %d: %s: %s", g.Generation, why, did)
	if !absolved {
		return nil
	}
	return so.SetSync(spec.SyncUnreachable, fmt.Sprintf("generation %d is taken again when the registry answers: %s", g.Generation, why))
}
