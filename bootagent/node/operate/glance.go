// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/soak"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
)

// Glances are the looks at a node for the operations that have disturbed it, by the checks
// of what runs.
type Glances struct {
	after soak.Afterwards
	of    []glance
}

// glance is what is known after one operation.
type glance struct {
	notes  string // the file that it is noted in
	record gate.Record
}

// Glances returns the looks that are due.
func (op *Operations) Glances() (g Glances, err error) {
	found, err := op.Effect.Running()
	if err != nil || found.Overlay.Gates == nil {
		return g, err
	}
	g.after = op.Soak.Afterwards(found)
	names, err := op.Engine(found).Judged()
	if err != nil {
		return g, err
	}
	for _, name := range names {
		switch r, err := g.after.Noted(name); {
		case err != nil:
			return g, err
		case r != nil && r.Judge(g.after.Checks).State == gate.Waiting:
			g.of = append(g.of, glance{name, *r})
		}
	}
	return g, nil
}

// None reports whether there are none.
func (g Glances) None() bool { return len(g.of) == 0 }

// Look looks at the checks, once for each operation. It needs no lock.
func (g Glances) Look(ctx context.Context, by gate.Prober) []gate.Record {
	looked := make([]gate.Record, len(g.of))
	for i, one := range g.of {
		looked[i] = by.Look(ctx, one.record, g.after.Checks)
	}
	return looked
}

// NoteGlances notes what was seen, where that still means anything, and returns how long to wait
// before the next look, 0 when nothing is to be looked at.
func (op *Operations) NoteGlances(before Glances, looked []gate.Record) (wait time.Duration, err error) {
	now, err := op.Glances()
	if err != nil {
		return 0, err
	}
	for _, g := range now.of {
		for i, b := range before.of {
			if b.notes != g.notes || b.record.Began != g.record.Began {
				continue
			}
			if err := looked[i].Save(g.notes); err != nil {
				return 0, err
			}
			g.record = looked[i]
		}
		next := g.record.NextLook(now.after.Checks, op.Base.Up())
		if wait == 0 || next < wait {
			wait = next
		}
	}
	return wait, nil
}
