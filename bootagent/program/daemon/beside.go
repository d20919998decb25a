// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/program/bootdisk"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/spec"
)

// goBeside does something beside the looks, where turn says that it is not being done.
func (s *service) goBeside(turn chan struct{}, do func()) {
	select {
	case turn <- struct{}{}:
		s.beside.Go(func() {
			defer func() { <-turn }()
			do()
		})
	default:
	}
}

// Judge looks at a change that has to pass its gates until that is decided. It returns
// the last status that there was.
func Judge(ctx context.Context, o session.Options, b *spec.Bootstrap, report func(error)) (last *spec.Status) {
	for {
		wait, st, err := node.Judge(ctx, o, b)
		switch {
		case ctx.Err() != nil:
			return last
		case err != nil:
			report(err)
			return last // the next pass looks again
		case st != nil:
			last = st
		}
		if wait == 0 {
			return last
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(wait):
		}
	}
}

// lookAfter looks at the node for the operations that have disturbed it, beside what
// else the service does, until there is nothing to look at.
func (s *service) lookAfter(ctx context.Context) {
	s.goBeside(s.after, func() {
		for {
			wait, err := node.LookAfter(ctx, s.o)
			if err != nil && ctx.Err() == nil && !errors.Is(err, track.ErrNothing) {
				s.report(err) // the next pass looks again
			}
			if err != nil || wait == 0 {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	})
}

// besideEnds is how long what the service does beside its looks has to end after them:
// what is being taken back is taken back whole and said.
const besideEnds = 20 * time.Second

// leave waits for what the service does beside its looks, which ends with them. What
// takes longer is cut, as by a power cut, and the next start goes on with it.
func (s *service) leave(within time.Duration) {
	ended := make(chan struct{})
	go func() {
		s.beside.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(within):
		s.o.Say("what is done beside the looks has not ended within %s: the next start goes on with it", within)
	}
}

// stageFor is how long one attempt to bring a waiting layer to the disk may take. The
// next one resumes it.
const stageFor = time.Hour

func (s *service) stage(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stageFor)
	defer cancel()
	n, err := node.Read(ctx, s.o, nil)
	if err == nil {
		err = errors.Join(n.Stage(ctx), n.Close())
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		s.report(err)
	}
}

// followLoader sees to what the disk starts. What the registry did not bring it is asked for in
// the rhythm of other questions.
func (s *service) followLoader(ctx context.Context) {
	if time.Now().Before(s.loaderAgain) {
		return
	}
	within, cancel := context.WithTimeout(ctx, stageFor)
	defer cancel()
	var err error
	if s.loader, err = bootdisk.Follow(within, s.o, s.loader); err != nil && ctx.Err() == nil {
		s.loaderAgain = time.Now().Add(askEvery)
		s.report(err)
	}
}

// letIn sees to who is let in, whatever else is wrong with the node, and shuts it when its time
// is over.
func (s *service) letIn(ctx context.Context) {
	s.goBeside(s.rescuing, func() {
		for {
			left, err := s.rescue.Look(ctx, s.o, askEvery)
			s.reportUnless(ctx, err)
			if left == 0 || left > lookEvery { // the next look
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(left):
			}
		}
	})
}
