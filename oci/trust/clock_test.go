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
		{"a day before what was signed", "2026-10-31", "2026-10-01", "2026-10-20", "2026-11-01", "2026-11-01", true},
		{"signed for the year 9998", "2026-11-10", "2026-10-01", "2026-10-20", "9998-01-01", "2026-11-10", true},
		{"signed for 9998, no clock", "", "2026-10-01", "2026-10-20", "9998-01-01", "2026-10-20", false},
		{"remembered 9998", "2026-11-10", "2026-10-01", "9998-01-01", "2026-11-01", "2026-11-10", true},
		{"remembered 9998, clock says 2100", "2100-01-01", "2026-10-01", "9998-01-01", "2026-11-01", "2026-11-01", false},
		{"remembered 9998, no clock", "", "2026-10-01", "9998-01-01", "2026-11-01", "2026-11-01", false},
		{"nine years after the build, no clock", "", "2026-10-01", "", "2035-11-01", "2035-11-01", false},
		{"all good", "2026-11-10", "2026-10-01", "2026-10-20", "2026-11-01", "2026-11-10", true},
		{"no clock", "", "2026-10-01", "2026-10-20", "2026-11-01", "2026-11-01", false},
		{"1970", "1970-01-01", "2026-10-01", "2026-10-20", "2026-09-01", "2026-10-20", false},
		{"1970, nothing newer than the build", "1970-01-01", "2026-10-01", "", "2026-09-01", "2026-10-01", false},
		{"2100", "2100-01-01", "2026-10-01", "2026-10-20", "2026-11-01", "2026-11-01", false},
		{"almost five years later", "2031-10-30", "2026-10-01", "", "2026-11-01", "2031-10-30", true},
		{"more than five years later", "2031-11-02", "2026-10-01", "", "2026-11-01", "2026-11-01", false},
		{"a slow clock after the build", "2026-10-05", "2026-10-01", "2026-10-20", "2026-11-01", "2026-10-05", true},
	} {
		now, sure := Clock{RTC: at(c.rtc), Build: at(c.build), Newest: at(c.newest)}.Now(at(c.issued))
		if !now.Equal(at(c.want)) || sure != c.sure {
			t.Errorf("%s: Now = %s, %v; want %s, %v", c.what, now.Format(time.DateOnly), sure, c.want, c.sure)
		}
	}
}

// A certificate is judged by the hardware clock, or by the build: never by what a
// statement says, so that no statement ends TLS.
func TestNoStatementMovesTheClockOfTLS(t *testing.T) {
	build, rtc := issued.AddDate(0, -1, 0), issued.AddDate(0, 0, 10)
	for what, c := range map[string]struct {
		clock Clock
		want  time.Time
		sure  bool
	}{
		"a plausible clock": {Clock{RTC: rtc, Build: build, Newest: rtc.Add(time.Hour)}, rtc, true},
		"poisoned":          {Clock{RTC: rtc, Build: build, Newest: issued.AddDate(8, 0, 0)}, rtc, true},
		"no clock":          {Clock{Build: build, Newest: issued.AddDate(8, 0, 0)}, build, false},
		"no build":          {Clock{Newest: issued.AddDate(8, 0, 0)}, firstRelease, false},
	} {
		now, sure := c.clock.Ticking()
		if got := now(); got.Sub(c.want) > time.Minute || got.Before(c.want) || sure != c.sure {
			t.Errorf("%s: %s, %v; want %s, %v", what, got, sure, c.want, c.sure)
		}
	}
}
