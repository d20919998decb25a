// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/spec"
)

// idle is how many times the processor time of an early look the next one is kept
// waiting: in a storm of events, early looks take no more than a twentieth of
// a processor. What a look waits for, a lock or a slow disk, costs nobody anything.
const idle = 19

// effort measures a look from [begin] on.
type effort struct {
	at   time.Time
	used time.Duration
}

func begin() effort { return effort{time.Now(), used()} }

// rest is how long the next early look is kept waiting. What the program did meanwhile
// beside the look counts, too, but never as more than one processor.
func (e effort) rest() time.Duration { return idle * min(time.Since(e.at), used()-e.used) }

// used returns the processor time of the program and of the children that it waited for.
func used() (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err == nil { // it fails for other arguments only
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// heed looks early at what may have changed, until something else is due. It returns
// true when everything is to be looked at: in its turn, because a verb was called, or
// because the clock was set.
func (s *service) heed(ctx context.Context, next, due <-chan time.Time) (over bool) {
	for {
		if s.written() != s.known {
			return true // a verb was called
		}
		var hinted <-chan struct{}
		var rested <-chan time.Time
		switch wait := time.Until(s.rested); {
		case s.hints == nil:
		case wait > 0:
			rested = time.After(wait)
		default:
			hinted = s.hints.Ready()
		}
		select {
		case <-ctx.Done():
			return true
		case <-next:
			return true
		case <-due:
			return false
		case <-s.clock: // windows may be open that were not, and other times have come
			return true
		case <-rested:
		case <-time.After(2 * time.Second):
		case <-hinted:
			if s.early(ctx) {
				return true
			}
		}
	}
}

// early looks at what the watch has hinted at. Where it may have lost something, it
// returns true: everything is looked at.
func (s *service) early(ctx context.Context) (everything bool) {
	began := begin()
	defer func() { s.rested = time.Now().Add(began.rest()) }()
	hints := s.hints.Take()
	if hints.All {
		s.lost = true
		return true
	}
	st, err := s.once(ctx, func(n *node.Node, ctx context.Context) (*spec.Status, error) {
		if len(hints.Refused) > 0 {
			if err := n.NoteRefused(hints.Refused); err != nil {
				return nil, err
			}
		}
		if len(hints.Kinds) == 0 {
			return nil, nil
		}
		return n.Early(ctx, hints.Kinds)
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, track.ErrNothing) {
		s.report(err)
	}
	if st != nil {
		s.tell(ctx, st)
	}
	return false
}

// recover is the same for a look at everything that a storm has brought about.
func (s *service) recover(began effort) {
	if s.lost {
		s.lost, s.rested = false, time.Now().Add(began.rest())
	}
}

// follow tells the watch what the node runs.
func (s *service) follow(ctx context.Context) {
	if s.hints == nil {
		return
	}
	var o *spec.Overlay
	var protected []string
	_, err := s.once(ctx, func(n *node.Node, _ context.Context) (*spec.Status, error) {
		var err error
		o, err = n.Overlay()
		protected = n.Protected()
		return nil, err
	})
	if err == nil { // else it was said
		s.hints.Follow(o, protected)
	}
}
