// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"testing"
	"time"
)

// simulated is a clock that goes on only when somebody sleeps or asks.
type simulated struct{ now time.Duration }

func (c *simulated) Up() time.Duration                        { return c.now }
func (c *simulated) Sleep(_ context.Context, d time.Duration) { c.now += d }
func (c *simulated) takes(d time.Duration, err error) func(context.Context) error {
	return func(context.Context) error { c.now += d; return err }
}

func TestReach(t *testing.T) {
	gone := errors.New("no route to host")
	t.Run("at once", func(t *testing.T) {
		c := &simulated{now: 5 * time.Second}
		if err := ReachWithin(t.Context(), c, time.Minute, c.takes(0, nil)); err != nil || c.now != 5*time.Second {
			t.Errorf("%v, %s", err, c.now)
		}
	})
	t.Run("a link that comes back", func(t *testing.T) {
		c := &simulated{}
		err := ReachWithin(t.Context(), c, time.Minute, func(context.Context) error {
			if c.now < 20*time.Second {
				return gone
			}
			return nil
		})
		if err != nil || c.now != 20*time.Second {
			t.Errorf("%v, %s", err, c.now)
		}
	})
	t.Run("never", func(t *testing.T) {
		c := &simulated{}
		asked := 0
		err := ReachWithin(t.Context(), c, time.Minute, func(context.Context) error { asked++; return gone })
		if !errors.Is(err, gone) || c.now < 58*time.Second || c.now > time.Minute || asked < 59 {
			t.Errorf("%v, %s, %d times", err, c.now, asked)
		}
	})
	t.Run("questions without an answer", func(t *testing.T) {
		c := &simulated{}
		err := ReachWithin(t.Context(), c, time.Minute, c.takes(10*time.Second, context.DeadlineExceeded))
		if err == nil || err.Error() != "no answer" || c.now > 66*time.Second {
			t.Errorf("%v, %s", err, c.now)
		}
	})
	t.Run("a question is cut off", func(t *testing.T) {
		began := time.Now()
		err := ReachWithin(t.Context(), KernelClock{func() time.Duration { return time.Since(began) }}, 100*time.Millisecond,
			func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if err == nil || time.Since(began) > time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &simulated{}
		err := ReachWithin(ctx, c, time.Minute, func(context.Context) error { cancel(); return gone })
		if !errors.Is(err, context.Canceled) || c.now != 0 {
			t.Errorf("%v, %s", err, c.now)
		}
	})
}
