// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/node/soak"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// Judge looks once at the change that has not proved itself, and does what follows: it
// becomes current, or what ran before comes back. It returns how long to wait before
// the next look, 0 when nothing is judged any more.
//
// The looking holds no lock: a check may take minutes. What the node has become
// meanwhile decides whether the result still means anything.
func Judge(ctx context.Context, o session.Options, bootstrap *spec.Bootstrap) (wait time.Duration, st *spec.Status, err error) {
	n, err := Read(ctx, o, bootstrap)
	if err != nil {
		return 0, nil, err
	}
	before, err := n.soak.Judging()
	if err = errors.Join(err, n.Close()); err != nil {
		return 0, nil, err
	}
	if before == nil {
		if _, err := os.Lstat(n.session.Path(paths.RunJudged)); err == nil { // it ends, unless another process begins one
			if n, err = Open(ctx, o, bootstrap); err == nil {
				err = errors.Join(n.soak.Bound(ctx), n.Close())
			}
			if err != nil {
				return 0, nil, err
			}
		}
		return 0, nil, watch(ctx, o, bootstrap)
	}
	looked := n.soak.Prober().Look(ctx, before.Record, before.Checks())
	if ctx.Err() != nil {
		return 0, nil, ctx.Err()
	}
	if n, err = Open(ctx, o, bootstrap); err != nil {
		return 0, nil, err
	}
	wait, st, err = n.cycle.Judge(ctx, before, looked)
	if bound := n.soak.Bound(ctx); bound != nil {
		n.session.Say("%v", bound) // what was found counts all the same
	}
	return wait, st, errors.Join(err, n.Close())
}

// LookAfter looks once at the node for the operations that have disturbed it, and
// returns how long to wait before the next look, 0 when nothing is to be looked at.
// What follows from it is done by the next [Node.Operate].
//
// The looking holds no lock, as that of [Judge].
func LookAfter(ctx context.Context, o session.Options) (wait time.Duration, err error) {
	n, err := Read(ctx, o, nil)
	if err != nil {
		return 0, err
	}
	before, err := n.operate.Glances()
	if err = errors.Join(err, n.Close()); err != nil || before.None() {
		return 0, err
	}
	looked := before.Look(ctx, n.soak.Prober())
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if n, err = Open(ctx, o, nil); err != nil {
		return 0, err
	}
	wait, err = n.operate.NoteGlances(before, looked)
	return wait, errors.Join(err, n.Close())
}

// watch looks once at those checks that are due. It holds no lock, as [Judge]: the next
// look at the node says what was found.
func watch(ctx context.Context, o session.Options, bootstrap *spec.Bootstrap) error {
	n, err := Read(ctx, o, bootstrap)
	if err != nil {
		return err
	}
	defer n.Close() // only read
	found, err := n.effect.Running()
	if err != nil {
		return nil // the next look at the node meets it, and says it once
	}
	checks := soak.Watched(&found.Overlay)
	if len(checks) == 0 {
		return nil
	}
	before, err := n.soak.Watching(found)
	if err != nil {
		return err
	}
	looked := n.soak.Prober().Look(ctx, before, checks)
	if ctx.Err() != nil {
		return nil // what was found is that this process ends
	}
	return looked.Save(n.session.Path(paths.RunWatched))
}

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
