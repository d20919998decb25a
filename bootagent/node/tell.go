// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Report returns what this node tells its fleet of a status, and where it goes; nil
// where its overlay names no reports.
func (n *Node) Report(st *spec.Status) (*spec.Report, *spec.Reporting, error) {
	found, err := n.effect.Running()
	if err != nil {
		return nil, nil, err
	}
	return n.look.ForFleet(found, st)
}

// Poll is how long this node's overlay wants from one question to the registry to the
// next; 0 where it says nothing, or what nobody may want.
func (n *Node) Poll() time.Duration {
	found, err := n.effect.Running()
	if err != nil || found.Overlay.Agent == nil || rules.Poll(found.Overlay.Agent.Poll) != nil {
		return 0
	}
	return time.Duration(found.Overlay.Agent.Poll) * time.Second
}

// Last is the status after the last run of the service; false where there was none
// since this root came up.
func (n *Node) Last() (*spec.Status, bool) {
	last := n.session.Last()
	return &last, last.Kind != "" && last.RootID == n.session.Scopes.Root
}

// ReportDir is where the numbers and the spool of reports are.
func (n *Node) ReportDir() string { return n.post.ReportDir() }

// Reporter opens what signs and sends reports, and makes this node's key where it has
// none. It stays usable when the node is closed.
func (n *Node) Reporter() (*post.Reporter, error) { return n.post.Reporter() }

// RecordReport notes in systemd's journal that the node tells news.
func (n *Node) RecordReport(r *spec.Report) { n.post.RecordReport(r) }

// LastRun returns the last run of a script of this node and what it printed.
func (n *Node) LastRun(name string) (*exec.Last, error) {
	return running(n, func(f *track.Found) (*exec.Last, error) { return n.effect.LastRun(f, name) })
}

// Trace says how long the steps took that made this node as it is.
func (n *Node) Trace() (*spec.Trace, error) {
	return running(n, func(f *track.Found) (*spec.Trace, error) { return n.look.Trace(f) })
}

// Why says what is wrong with this node.
func (n *Node) Why(ctx context.Context) (spec.Why, error) { return n.look.Why(ctx) }

// Services says where the services of this node stand.
func (n *Node) Services() ([]spec.ServiceStatus, error) {
	return running(n, func(f *track.Found) ([]spec.ServiceStatus, error) { return n.services.List(&f.Overlay), nil })
}

// FreezeService keeps a service at the image that it has.
func (n *Node) FreezeService(name, reason string) (spec.ServiceStatus, error) {
	return running(n, func(f *track.Found) (spec.ServiceStatus, error) { return n.services.Freeze(&f.Overlay, name, reason) })
}

// RollbackService takes a service to the image that it had before, and keeps it there.
func (n *Node) RollbackService(name, reason string) (spec.ServiceStatus, error) {
	return running(n, func(f *track.Found) (spec.ServiceStatus, error) { return n.services.Rollback(&f.Overlay, name, reason) })
}

// ForwardService has a service follow the overlay again.
func (n *Node) ForwardService(name string) (spec.ServiceStatus, error) {
	return running(n, func(f *track.Found) (spec.ServiceStatus, error) { return n.services.Forward(&f.Overlay, name) })
}

// Operate notes which operations have ended and starts those that are due. It waits
// for none of them. What an operation does not manage is in its status, and makes the
// node degraded; an error is of the ledger.
func (n *Node) Operate(ctx context.Context) ([]spec.OperationStatus, error) {
	if err := n.cycle.Settle(ctx); err != nil {
		return nil, err
	}
	found, err := n.effect.Running()
	if err != nil {
		return nil, err
	}
	switch paused, err := n.effect.PausedBy(found); {
	case err != nil:
		return nil, err
	case paused != "":
		return n.operate.View(found), nil
	}
	list, err := n.operate.Engine(found).Look(ctx, found.Overlay.Maintenance)
	return append(list, n.operate.Realtime(found)...), err
}

// Operations says where the operations stand.
func (n *Node) Operations() ([]spec.OperationStatus, error) {
	return running(n, func(f *track.Found) ([]spec.OperationStatus, error) { return n.operate.View(f), nil })
}

// Ask notes that an operator wants an operation to run: now, or else again, in its
// windows. The service starts it within a minute; runs is true where it runs already.
func (n *Node) Ask(name string, atOnce bool) (runs bool, err error) {
	found, err := n.effect.Running()
	if err != nil {
		return false, err
	}
	return n.operate.Ask(found, name, atOnce)
}

// Windows returns the windows of this node, by name.
func (n *Node) Windows() (map[string]spec.Window, error) {
	found, err := n.effect.Running()
	if err != nil || found.Overlay.Maintenance == nil {
		return nil, err
	}
	return found.Overlay.Maintenance.Windows, nil
}
