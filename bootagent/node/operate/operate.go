// SPDX-License-Identifier: Apache-2.0

// Package operate makes the engine of a node's operations, see package operation: its
// clocks, its ledger, its turns, how the node is judged afterwards, and the swap of a layer,
// which is an operation as well.
package operate

import (
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/effect"
	"github.com/caisson-os/caisson/bootagent/node/soak"
	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/track"
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
