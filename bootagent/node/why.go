// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/spec"
)

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
