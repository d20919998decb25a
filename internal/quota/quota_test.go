// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"errors"
	"testing"
)

func TestTake(t *testing.T) {
	q := New(3, 2)
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
	q := New(1, 1)
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
