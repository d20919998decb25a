// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"slices"
	"testing"
)

func TestList(t *testing.T) {
	even, small := errors.New("odd"), errors.New("large")
	l := List[int]{
		{"even", func(n int) error {
			if n%2 != 0 {
				return even
			}
			return nil
		}},
		{"small", func(n int) error {
			if n > 10 {
				return small
			}
			return nil
		}},
	}
	pass := func(int) error { return nil }
	for _, c := range []struct {
		list List[int]
		n    int
		want error
	}{
		{l, 4, nil},
		{l, 13, even}, // the first one answers
		{l, 12, small},
		{l.Without("even"), 3, nil},
		{l.Without("even"), 13, small},
		{l.With("small", pass), 12, nil},
		{l.With("small", pass), 13, even},
	} {
		if err := c.list.Run(c.n); err != c.want {
			t.Errorf("%v on %d: %v, want %v", c.list.Names(), c.n, err, c.want)
		}
	}
	if got := l.Names(); !slices.Equal(got, []string{"even", "small"}) {
		t.Errorf("the list was changed: %q", got)
	}
}
