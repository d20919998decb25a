// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestTake(t *testing.T) {
	q := NewQuota(3, 2)
	take := func(client string, want error) func() {
		t.Helper()
		give, err := q.Take(client)
		if !errors.Is(err, want) {
			t.Fatalf("%s: %v, want %v", client, err, want)
		}
		return give
	}
	first := take("a", nil)
	take("a", nil)
	take("a", ErrClient)
	take("b", nil)
	take("b", ErrFull)
	first()
	first() // once more gives no place of another back
	take("c", nil)
	take("a", ErrFull)
	if len(q.of) != 3 {
		t.Errorf("clients: %v", q.of)
	}
}

// Who has no place any more is forgotten.
func TestForget(t *testing.T) {
	q := NewQuota(1, 1)
	for _, client := range []string{"a", "b", "c"} {
		give, err := q.Take(client)
		if err != nil {
			t.Fatal(err)
		}
		give()
	}
	if len(q.of) != 0 || q.taken != 0 {
		t.Errorf("%d are taken, of %v", q.taken, q.of)
	}
}

// TestTurns: of many that one client sends as many have a place as it may have, and another
// client has one at once; who gives up leaves nothing behind.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(8, 2)
		ctx, cancel := context.WithCancel(t.Context())
		had := make(chan func(), 10)
		for range 10 {
			go func() { had <- turns.Take(ctx, "a") }()
		}
		synctest.Wait()
		if len(had) != 2 {
			t.Fatalf("one client has %d places, want 2", len(had))
		}
		b := turns.Take(t.Context(), "b")
		if b == nil {
			t.Fatal("another client has none")
		}
		(<-had)()
		synctest.Wait()
		if len(had) != 2 {
			t.Errorf("a place that was given back: %d are had, want one more", len(had))
		}
		cancel()
		synctest.Wait()
		b()
		for range 9 {
			if give := <-had; give != nil {
				give()
			}
		}
		if len(turns.of) != 0 || len(turns.all) != 0 {
			t.Errorf("left behind: %v, %d places", turns.of, len(turns.all))
		}

		// Who waits for a place of all leaves its own.
		for _, client := range []string{"a", "b", "c", "d"} {
			turns.Take(t.Context(), client)
			turns.Take(t.Context(), client)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if turns.Take(ended, "e") != nil || len(turns.of) != 4 {
			t.Errorf("of %d clients one gave up", len(turns.of))
		}
	})
}
