// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/spec"
)

// StackNext verifies the images of the next root and makes it. It is the act of a
// service of its own: what makes a root needs more than the agent's service may do, and
// overlayfs asks later what that had then. Who asked for it holds the lock.
func StackNext(ctx context.Context, o session.Options) error {
	n, err := Read(ctx, o, nil)
	if err != nil {
		return err
	}
	defer n.Close() // only read
	next, class, why, err := n.destination.Next(ctx)
	switch {
	case err != nil:
		return err
	case class != spec.ClassSoftReboot:
		return fmt.Errorf("no soft-reboot: %s: %s", class, why)
	}
	ctx, cancel := context.WithTimeout(ctx, destination.StackTime)
	defer cancel()
	if err := next.Check(ctx, stage.Stager{Store: next.Store, Talk: destination.StackTime, Say: o.Say}); err != nil {
		return err
	}
	return next.Stack()
}
