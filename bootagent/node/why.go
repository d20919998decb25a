// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"

	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/say"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
)

// LastRun returns the last run of a script of this node and what it printed.
func (n *Node) LastRun(name string) (*exec.Last, error) {
	found, err := n.effect.Running()
	if err != nil {
		return nil, err
	}
	for _, it := range n.effect.Items(found) {
		if scripts, ok := it.(*exec.Item); ok {
			return scripts.Last(name)
		}
	}
	return nil, nil // the table has scripts
}

// Trace says how long the steps took that made this node as it is.
func (n *Node) Trace() (*spec.Trace, error) {
	found, err := n.effect.Running()
	if err != nil {
		return nil, err
	}
	return n.look.Trace(found)
}

// Why says what is wrong with this node. A node that cannot say what it runs still has
// its black box.
func (n *Node) Why(ctx context.Context) (spec.Why, error) {
	events, trouble := n.session.Box().Events()
	if n.session.Unbound != nil {
		return spec.Why{}, n.session.Unbound
	}
	st, err := n.look.Status(ctx)
	if err != nil {
		if errors.Is(err, track.ErrNothing) {
			err = nil
		}
		st = say.Nothing(n.session.Boot, n.session.Tracker.Bootstrap.Fleet, err)
	}
	return say.Why(st, n.session.Boot, events, trouble), nil
}
