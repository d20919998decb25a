// SPDX-License-Identifier: Apache-2.0

// Package operate makes the engine of a node's operations, see package operation: its
// clocks, its ledger, its turns, how the node is judged afterwards, and the swap of a layer,
// which is an operation as well. It keeps what an operator holds, too, see [Holds].
package operate

import (
	"context"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/effect"
	"github.com/caisson-os/caisson/bootagent/node/soak"
	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/spec"
)

// Operations are those of an open node.
type Operations struct {
	Base         operation.Engine // what does not come of an overlay: its ledger, clocks and runner
	Root, Kernel string           // ids of the root and of the boot of its kernel
	Owner        *record.Owner
	Destination  *destination.Destination
	Effect       *effect.Effect
	Soak         *soak.Soak
	Post         *post.Post
	Decided      decide.Observer
}

// Engine is the engine for this node's operations. Its ledger is on the state
// disk, and lives as long as that: without one, a boot.
func (op *Operations) Engine(found *track.Found) *operation.Engine {
	e := op.Base
	e.Node, e.Servers = found.Overlay.Node, found.Overlay.Network.NTP
	e.Record = func(what string, o spec.Operation, detail string) {
		fields := []events.Field{events.With("operation", o.Name), events.With("id", o.ID), events.With("what", what)}
		if detail != "" {
			fields = append(fields, events.With("why", detail))
		}
		op.Effect.Log.Record("operation", fields...)
	}
	if g := found.Overlay.Gates; g != nil && len(g.Checks) > 0 {
		e.Gates = op.Soak.Afterwards(found)
	}
	e.Slots, e.Swap = op.Post.Slots(&found.Overlay), op.swap(found)
	return &e
}

// View says where the operations of an overlay stand.
func (op *Operations) View(found *track.Found) []spec.OperationStatus {
	return append(op.Engine(found).View(found.Overlay.Maintenance), op.Realtime(found)...)
}

// Realtime says what operations of that type do now.
func (op *Operations) Realtime(found *track.Found) (out []spec.OperationStatus) {
	if found.Overlay.Maintenance == nil {
		return nil
	}
	for _, r := range found.Overlay.Maintenance.Realtime {
		s := spec.OperationStatus{Name: r.Name, Type: spec.RealtimeType, State: spec.OperationHolding}
		if why := op.Effect.Late(found, &r); why != "" {
			s.State, s.For, s.Detail = spec.OperationWaiting, spec.ForWindow, why+"; until then drift is reported"
		}
		out = append(out, s)
	}
	return out
}

// Ask notes that an operator wants an operation of what runs to run: now, or else again, in
// its windows; runs is true where it runs already.
func (op *Operations) Ask(found *track.Found, name string, atOnce bool) (runs bool, err error) {
	if runs, err = op.Engine(found).Ask(found.Overlay.Maintenance, name, atOnce); err != nil || runs {
		return runs, err
	}
	what := "asked for again"
	if atOnce {
		what = "asked for now"
	}
	op.Effect.Log.Record("operation", events.With("operation", name), events.With("what", what))
	return false, nil
}

// Glances are the looks at a node for the operations that have disturbed it, by the checks
// of what runs.
type Glances struct {
	after soak.Afterwards
	of    []glance
}

// glance holds the gates' record after one operation.
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
