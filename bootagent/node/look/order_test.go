// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// timed are units by when they began and were there, in seconds.
type timed map[string][2]time.Duration

func (u timed) Times(_ context.Context, unit string) (began, there time.Duration, err error) {
	return u[unit][0] * time.Second, u[unit][1] * time.Second, nil
}

func TestBrokenOrders(t *testing.T) {
	l := &Look{Units: timed{
		"srv-a\\x2db.mount": {9, 10}, "early.service": {4, 5}, "late.service": {11, 12}, "slow.service": {8, 0},
		"behind.service": {8, 11}, "fine.service": {8, 10}}}
	got := l.brokenOrders([]spec.Mount{
		{Target: "/srv/a-b", Before: []string{"early.service", "late.service", "never.service"},
			After: []string{"slow.service", "behind.service", "fine.service", "never.service"}},
		{Target: "/srv/none", Before: []string{"early.service"}, After: []string{"behind.service"}},
	})
	want := []string{"early.service began 6s before /srv/a-b was mounted",
		"slow.service was not there when /srv/a-b was mounted",
		"behind.service was not there when /srv/a-b was mounted"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
