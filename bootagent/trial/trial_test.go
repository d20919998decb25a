// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/state"
)

func TestJudge(t *testing.T) {
	waiting := state.Trial{Boot: "this", Confirm: state.ByOperator, Within: 60, Ends: 160}
	for name, row := range map[string]struct {
		change func(*state.Trial)
		boot   string
		up     time.Duration
		want   Verdict
		why    string
	}{
		"none":                          {nil, "this", 0, Nothing, ""},
		"undone":                        {func(s *state.Trial) { s.Reason = "because" }, "this", time.Hour, Nothing, ""},
		"undone in another boot":        {func(s *state.Trial) { s.Reason = "because" }, "that", time.Hour, Nothing, ""},
		"waiting":                       {func(*state.Trial) {}, "this", 100 * time.Second, Wait, ""},
		"waiting, to the last moment":   {func(*state.Trial) {}, "this", 160*time.Second - 1, Wait, ""},
		"over":                          {func(*state.Trial) {}, "this", 160 * time.Second, Undo, "nobody confirmed it within 60 s"},
		"long over":                     {func(*state.Trial) {}, "this", 24 * time.Hour, Undo, "nobody confirmed"},
		"another boot, in time":         {func(*state.Trial) {}, "that", time.Second, Undo, "started over"},
		"unfinished":                    {func(s *state.Trial) { s.Ends = 0 }, "this", 100 * time.Second, Undo, "the agent ended"},
		"unfinished, by reach":          {func(s *state.Trial) { s.Ends, s.Confirm = 0, state.ByReach }, "this", 100 * time.Second, Undo, "the agent ended"},
		"unfinished, of another boot":   {func(s *state.Trial) { s.Ends = 0 }, "that", 100 * time.Second, Undo, "started over"},
		"of a kernel that has just run": {func(s *state.Trial) { s.Ends = 1 }, "this", 0, Wait, ""},
	} {
		var trial *state.Trial
		if row.change != nil {
			copied := waiting
			trial = &copied
			row.change(trial)
		}
		got, why := Judge(trial, row.boot, row.up)
		if got != row.want || !strings.Contains(why, row.why) || (why == "") != (row.want != Undo) {
			t.Errorf("%s: %v, %q", name, got, why)
		}
	}
}

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
		if err := Reach(t.Context(), c, time.Minute, c.takes(0, nil)); err != nil || c.now != 5*time.Second {
			t.Errorf("%v, %s", err, c.now)
		}
	})
	t.Run("a link that comes back", func(t *testing.T) {
		c := &simulated{}
		err := Reach(t.Context(), c, time.Minute, func(context.Context) error {
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
		err := Reach(t.Context(), c, time.Minute, func(context.Context) error { asked++; return gone })
		if !errors.Is(err, gone) || c.now < 58*time.Second || c.now > time.Minute || asked < 59 {
			t.Errorf("%v, %s, %d times", err, c.now, asked)
		}
	})
	t.Run("questions without an answer", func(t *testing.T) {
		c := &simulated{}
		err := Reach(t.Context(), c, time.Minute, c.takes(10*time.Second, context.DeadlineExceeded))
		if err == nil || err.Error() != "no answer" || c.now > 66*time.Second {
			t.Errorf("%v, %s", err, c.now)
		}
	})
	t.Run("a question is cut off", func(t *testing.T) {
		began := time.Now()
		err := Reach(t.Context(), Kernel{func() time.Duration { return time.Since(began) }}, 100*time.Millisecond,
			func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if err == nil || time.Since(began) > time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &simulated{}
		err := Reach(ctx, c, time.Minute, func(context.Context) error { cancel(); return gone })
		if !errors.Is(err, context.Canceled) || c.now != 0 {
			t.Errorf("%v, %s", err, c.now)
		}
	})
}
