// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.DateOnly, s)
		if s != "" && err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		what, rtc, build, newest, issued, want string
		sure                                   bool
	}{
		{"all good", "2026-11-10", "2026-10-01", "2026-10-20", "2026-11-01", "2026-11-10", true},
		{"no clock", "", "2026-10-01", "2026-10-20", "2026-11-01", "2026-11-01", false},
		{"1970", "1970-01-01", "2026-10-01", "2026-10-20", "2026-09-01", "2026-10-20", false},
		{"1970, nothing newer than the build", "1970-01-01", "2026-10-01", "", "2026-09-01", "2026-10-01", false},
		{"2100", "2100-01-01", "2026-10-01", "2026-10-20", "2026-11-01", "2026-11-01", false},
		{"almost five years later", "2031-10-30", "2026-10-01", "", "2026-11-01", "2031-10-30", true},
		{"more than five years later", "2031-11-02", "2026-10-01", "", "2026-11-01", "2026-11-01", false},
		{"a slow clock after the build", "2026-10-05", "2026-10-01", "2026-10-20", "2026-11-01", "2026-11-01", true},
	} {
		now, sure := Clock{RTC: at(c.rtc), Build: at(c.build), Newest: at(c.newest)}.Now(at(c.issued))
		if !now.Equal(at(c.want)) || sure != c.sure {
			t.Errorf("%s: Now = %s, %v; want %s, %v", c.what, now.Format(time.DateOnly), sure, c.want, c.sure)
		}
	}
}
