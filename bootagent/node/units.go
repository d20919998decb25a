// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// turnWithin is how long what is set before services start waits for whom the node is open to.
const turnWithin = 10 * time.Second

// SetEarly sets what is to be there at a moment before services start. It is the act of a service
// of its own, which no other waits for longer than that may take.
func SetEarly(ctx context.Context, o session.Options, when spec.When) error {
	o.Fetch = func(spec.Bootstrap, track.Way) (oci.Source, error) {
		return nil, errors.New("no registry is asked before services start")
	}
	turn, cancel := context.WithTimeout(ctx, turnWithin)
	defer cancel()
	n, err := Open(turn, o, nil)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("everything is left to the agent: another caisson-agent has the node for %s: %w", turnWithin, err)
	}
	if err != nil {
		return err
	}
	if n.session.Tracker == nil {
		return n.Close() // nobody is trusted: nothing runs
	}
	return errors.Join(n.cycle.Early(ctx, when), n.Close())
}

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
