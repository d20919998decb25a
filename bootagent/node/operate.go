// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/spec"
)

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
