// SPDX-License-Identifier: Apache-2.0

// Package trial answers whether a change that may have cut the node off did: a test of
// the way to the registry, or an operator's word, has a time to say that it did not.
//
// A trial is saved before the change begins and says who confirms it and until when,
// see state.Trial. This package has the two decisions: what to do about a trial that
// is found, by whichever process, and whether the node is reached. It changes
// nothing; package node does. Time is what the kernel runs, in seconds: the change
// itself may set the clock.
package trial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/state"
)

// Within is how long a change has to prove that the node can still be reached.
const Within = time.Minute

// Verdict is what to do about a trial.
type Verdict int

// Verdicts.
const (
	Nothing Verdict = iota // there is none, or it had its outcome
	Wait                   // it is in effect, and somebody has time left to confirm it
	Undo
)

// Judge says what to do about a trial that is found in a boot, up seconds after it
// began. The process that applies and tests one does not ask; whoever else finds it
// unfinished knows that that process is gone.
func Judge(t *state.Trial, boot string, up time.Duration) (v Verdict, why string) {
	switch {
	case !t.Pending():
		return Nothing, ""
	case t.Boot != boot:
		return Undo, "the machine was started over before it was confirmed"
	case t.Ends == 0:
		return Undo, "the agent ended before it was confirmed"
	case Left(t, up) <= 0:
		return Undo, fmt.Sprintf("nobody confirmed it within %d s", t.Within)
	}
	return Wait, ""
}

// Left is how much time there is to confirm a trial that waits.
func Left(t *state.Trial, up time.Duration) time.Duration {
	return time.Duration(t.Ends)*time.Second - up
}

// Clock is the time that a test takes.
type Clock interface {
	Up() time.Duration
	Sleep(ctx context.Context, d time.Duration)
}

// How often is asked, and how long one question may take.
const (
	pause   = time.Second
	answers = 10 * time.Second
)

// Reach asks until there is an answer, for as long as within, and returns the error of
// the last question when there is none.
func Reach(ctx context.Context, c Clock, within time.Duration, ask func(context.Context) error) error {
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

// Kernel is the clock of this machine.
type Kernel struct{ Uptime func() time.Duration }

// Up implements Clock.
func (k Kernel) Up() time.Duration { return k.Uptime() }

// Sleep implements Clock.
func (k Kernel) Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
