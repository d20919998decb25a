// SPDX-License-Identifier: Apache-2.0

package stall

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// TestWithin: what hangs is not waited for, does not add up, and is over before the next
// call of its name.
func TestWithin(t *testing.T) {
	wrong := errors.New("wrong")
	if err := Within(t.Context(), "a", func() error { return wrong }); err != wrong {
		t.Error(err)
	}
	end, calls := make(chan struct{}), make(chan int, 10)
	short := func() context.Context {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("late"))
		t.Cleanup(cancel)
		return ctx
	}
	for n := range 5 {
		err := Within(short(), "a", func() error { calls <- n; <-end; return nil })
		if err == nil || err.Error() != "late" {
			t.Errorf("%d: %v", n, err)
		}
	}
	if err := Within(t.Context(), "b", func() error { return nil }); err != nil {
		t.Errorf("another one: %v", err)
	}
	close(end)
	if err := Within(t.Context(), "a", func() error { calls <- 9; return nil }); err != nil {
		t.Error(err)
	}
	close(calls)
	var made []int
	for n := range calls {
		made = append(made, n)
	}
	if !slices.Equal(made, []int{0, 9}) {
		t.Errorf("calls %d", made)
	}
}

// TestRest: a rest ends with its time, or before that with its context, whose cause it returns.
func TestRest(t *testing.T) {
	if err := Rest(t.Context(), time.Microsecond); err != nil {
		t.Error(err)
	}
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	if err := Rest(ctx, time.Hour); err != over {
		t.Error(err)
	}
}
