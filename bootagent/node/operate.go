// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/trace"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/bootagent/trial"
	"github.com/caisson-os/caisson/bootagent/window"
	"github.com/caisson-os/caisson/spec"
)

// operations is the engine for this node's operations. Its ledger is on the state
// disk, and lives as long as that: without one, a boot.
func (n *Node) operations(found *track.Found) *operation.Engine {
	name := found.Overlay.Node
	e := &operation.Engine{Dir: n.folder.Path("ops"), Node: name, Boot: n.start(), Remembers: n.scopes.Disk != "",
		Now: n.now, Up: n.up, Synchronised: n.synchronised, Runner: n.runner(), Record: func(what string, o spec.Operation, detail string) {
			fields := []events.Field{events.With("operation", o.Name), events.With("id", o.ID), events.With("what", what)}
			if detail != "" {
				fields = append(fields, events.With("why", detail))
			}
			n.record("operation", fields...)
		}}
	if g := found.Overlay.Gates; g != nil && len(g.Checks) > 0 {
		e.Gates = n.afterwards(found)
	}
	e.Slots, e.Root = n.slots(&found.Overlay), n.o.Root
	e.Swap = n.swap(found)
	if units := n.systemd(); units != nil {
		e.Units = units
	}
	if e.Runner == nil {
		e.Runner = new(process.Group) // which knows only its own
	}
	return e
}

// start is the id of what this machine's init started last: a soft-reboot starts all of
// it anew, and the kernel goes on.
func (n *Node) start() string {
	if n.boot.Mode == spec.ModeAttached || n.boot.Upper == "" {
		return n.scopes.Kernel
	}
	return n.scopes.Root
}

// now is the time by which windows are judged.
func (n *Node) now() time.Time {
	if n.o.Clock != nil {
		return n.o.Clock()
	}
	return time.Now()
}

// clock tells how long the kernel runs, however the other one is set.
func (n *Node) clock() trial.Clock {
	if n.o.Kernel != nil {
		return n.o.Kernel
	}
	return trial.Kernel{Uptime: trace.Uptime}
}

// up is how long this kernel runs.
func (n *Node) up() time.Duration { return n.clock().Up() }

// synchronised reports whether that time is to be trusted.
func (n *Node) synchronised() bool { return n.o.Clock != nil || window.Synchronised() }

// view says where the operations of an overlay stand.
func (n *Node) view(found *track.Found) []spec.OperationStatus {
	return append(n.operations(found).View(found.Overlay.Maintenance), n.realtime(found)...)
}

// realtime says what operations of that type do now.
func (n *Node) realtime(found *track.Found) (out []spec.OperationStatus) {
	if found.Overlay.Maintenance == nil {
		return nil
	}
	for _, r := range found.Overlay.Maintenance.Realtime {
		s := spec.OperationStatus{Name: r.Name, Type: spec.RealtimeType, State: spec.OperationHolding}
		if why := n.late(found, &r); why != "" {
			s.State, s.For, s.Detail = spec.OperationWaiting, spec.ForWindow, why+"; until then drift is reported"
		}
		out = append(out, s)
	}
	return out
}

// Operate notes which operations have ended and starts those that are due. It waits
// for none of them. What an operation does not manage is in its status, and makes the
// node degraded; an error is of the ledger.
func (n *Node) Operate(ctx context.Context) ([]spec.OperationStatus, error) {
	if err := n.settle(ctx); err != nil {
		return nil, err
	}
	found, err := n.running()
	if err != nil {
		return nil, err
	}
	switch paused, err := n.pausedBy(found); {
	case err != nil:
		return nil, err
	case paused != "":
		return n.view(found), nil
	}
	list, err := n.operations(found).Look(ctx, found.Overlay.Maintenance)
	return append(list, n.realtime(found)...), err
}

// Operations says where the operations stand.
func (n *Node) Operations() ([]spec.OperationStatus, error) {
	found, err := n.running()
	if err != nil {
		return nil, err
	}
	return n.view(found), nil
}

// Ask notes that an operator wants an operation to run: now, or else again, in its
// windows. The service starts it within a minute.
func (n *Node) Ask(name string, atOnce bool) error {
	found, err := n.running()
	if err != nil {
		return err
	}
	if err := n.operations(found).Ask(found.Overlay.Maintenance, name, atOnce); err != nil {
		return err
	}
	what := "asked for again"
	if atOnce {
		what = "asked for now"
	}
	n.record("operation", events.With("operation", name), events.With("what", what))
	return nil
}

// Windows returns the windows of this node, by name.
func (n *Node) Windows() (map[string]spec.Window, error) {
	found, err := n.running()
	if err != nil || found.Overlay.Maintenance == nil {
		return nil, err
	}
	return found.Overlay.Maintenance.Windows, nil
}
