// SPDX-License-Identifier: Apache-2.0

// Package operate makes the engine of a node's operations, see package operation: its
// clocks, its ledger, its turns, how the node is judged afterwards, and the swap of a layer,
// which is an operation as well.
package operate

import (
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/effect"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/node/soak"
	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/spec"
)

// Operations are those of an open node.
type Operations struct {
	*session.Session
	effect      *effect.Effect
	destination *destination.Destination
	soak        *soak.Soak
	post        *post.Post
}

// New returns the operations of an open node.
func New(d *destination.Destination, e *effect.Effect, s *soak.Soak, p *post.Post) *Operations {
	return &Operations{e.Session, e, d, s, p}
}

// Engine is the engine for this node's operations. Its ledger is on the state
// disk, and lives as long as that: without one, a boot.
func (op *Operations) Engine(found *track.Found) *operation.Engine {
	name := found.Overlay.Node
	e := &operation.Engine{Dir: op.Folder.Path("ops"), Node: name, Boot: op.Start(), Remembers: op.Scopes.Disk != "",
		Now: op.Now, Up: op.Up, Synchronised: op.Synchronised, Runner: op.Runner(), Record: func(what string, o spec.Operation, detail string) {
			fields := []events.Field{events.With("operation", o.Name), events.With("id", o.ID), events.With("what", what)}
			if detail != "" {
				fields = append(fields, events.With("why", detail))
			}
			op.Record("operation", fields...)
		}}
	if g := found.Overlay.Gates; g != nil && len(g.Checks) > 0 {
		e.Gates = op.soak.Afterwards(found)
	}
	e.Slots, e.Root = op.post.Slots(&found.Overlay), op.Options.Root
	e.Swap, e.Servers = op.swap(found), found.Overlay.Network.NTP
	if units := op.Systemd(); units != nil {
		e.Units = units
	}
	if e.Runner == nil {
		e.Runner = new(process.Group) // which knows only its own
	}
	return e
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
		if why := op.effect.Late(found, &r); why != "" {
			s.State, s.For, s.Detail = spec.OperationWaiting, spec.ForWindow, why+"; until then drift is reported"
		}
		out = append(out, s)
	}
	return out
}
