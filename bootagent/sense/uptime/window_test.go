// SPDX-License-Identifier: Apache-2.0

package uptime

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

func TestMay(t *testing.T) {
	day := func(d, hour int) time.Time { return time.Date(2026, 11, d, hour, 0, 0, 0, time.UTC) }
	m := &spec.Maintenance{Horizon: day(30, 0), Windows: map[string]spec.Window{
		"a":     {Intervals: []spec.Interval{{From: day(1, 10), To: day(1, 14)}, {From: day(8, 10), To: day(8, 14)}}, StartGuard: 3600, OnClose: "stop"},
		"b":     {Intervals: []spec.Interval{{From: day(2, 10), To: day(2, 14)}}},
		"never": {},
	}}
	for _, c := range []struct {
		names string
		at    time.Time
		why   string // empty: it may
		stop  bool
	}{
		{"", day(1, 0), "", false},
		{"a", day(1, 9), "window a opens at 2026-11-01 10:00 UTC", true},
		{"a", day(1, 10), "", false},
		{"a", day(1, 13), "window a closes soon, at 2026-11-01 14:00 UTC", false},
		{"a", day(1, 14), "window a opens at 2026-11-08 10:00 UTC", true},
		{"a b", day(1, 14), "window b opens at 2026-11-02 10:00 UTC", false},
		{"a b", day(2, 13), "", false},
		{"b", day(2, 14), "no window opens before 2026-11-30", false},
		{"never", day(1, 0), "no window opens before 2026-11-30", false},
		{"b", day(30, 0), "ended at 2026-11-30 00:00 UTC: the site has to be published again", false},
		{"unknown", day(1, 0), "no window opens", false},
	} {
		ok, why := May(m, strings.Fields(c.names), c.at)
		if ok != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%q at %v: %v, %s", c.names, c.at, ok, why)
		}
		if got := Stop(m, strings.Fields(c.names), c.at); got != c.stop {
			t.Errorf("%q at %v: stop %v", c.names, c.at, got)
		}
	}
	if next, ok := Next(m.Windows["a"], day(1, 10)); !ok || next != day(8, 10) {
		t.Errorf("next %v, %v", next, ok)
	}
}
