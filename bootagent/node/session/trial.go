// SPDX-License-Identifier: Apache-2.0

// After a change that may have cut the node off the registry is asked whether it is still reached, for as long
// as such a change has to show that.
//
// Time is the kernel's uptime: the change itself may set the clock. What follows from
// the answer is decided in package decide.

package session

import (
	"context"
	"errors"
	"time"
)

// TrialTime is how long a change has to prove that the node can still be reached.
const TrialTime = time.Minute

// TrialClock is the time that a test takes.
type TrialClock interface {
	Up() time.Duration
	Sleep(ctx context.Context, d time.Duration)
}

// How often is asked, and how long one question may take.
const (
	pause   = time.Second
	answers = 10 * time.Second
)

// ReachWithin asks until there is an answer, for as long as within, and returns the error of
// the last question when there is none.
func ReachWithin(ctx context.Context, c TrialClock, within time.Duration, ask func(context.Context) error) error {
	end := c.Up() + within
	for {
		left := end - c.Up()
		one, cancel := context.WithTimeout(ctx, min(answers, max(left, time.Millisecond)))
		err := ask(one)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case c.Up()+pause >= end:
			if errors.Is(err, context.DeadlineExceeded) {
				err = errors.New("no answer")
			}
			return err
		}
		c.Sleep(ctx, pause)
	}
}

// KernelClock is the clock of this machine.
type KernelClock struct{ Uptime func() time.Duration }

// Up implements Clock.
func (k KernelClock) Up() time.Duration { return k.Uptime() }

// Sleep implements Clock.
func (k KernelClock) Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
