// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"sort"
	"sync"
	"time"
)

// Day is a day of a calendar, in no zone.
type Day struct {
	Year  int
	Month time.Month
	Day   int
}

// DayOf returns the day that t falls on in its own zone.
func DayOf(t time.Time) Day {
	y, m, d := t.Date()
	return Day{y, m, d}
}

// ParseDay reads YYYY-MM-DD.
func ParseDay(s string) (Day, error) {
	t, err := time.Parse(time.DateOnly, s)
	return DayOf(t), err
}

// String writes YYYY-MM-DD.
func (d Day) String() string { return d.noon().Format(time.DateOnly) }

// noon is where arithmetic on days is done.
func (d Day) noon() time.Time { return time.Date(d.Year, d.Month, d.Day, 12, 0, 0, 0, time.UTC) }

// Add returns the day n days later.
func (d Day) Add(n int) Day { return DayOf(d.noon().AddDate(0, 0, n)) }

// Weekday returns the day's name.
func (d Day) Weekday() time.Weekday { return d.noon().Weekday() }

// last is the number of the last day of d's month.
func (d Day) last() int { return Day{d.Year, d.Month + 1, 0}.noon().Day() }

// At returns when a day's clocks show a time, counted from midnight, in a zone: the
// first time if twice, the next time that exists if never.
func (d Day) At(clock time.Duration, zone *time.Location) time.Time {
	// wall is the time that the clocks show, as if it were UTC. Time.ZoneBounds would answer
	// directly, but returns empty spans on the last day of leap years in Africa/Cairo.
	wall := time.Date(d.Year, d.Month, d.Day, 0, 0, 0, 0, time.UTC).Add(clock)
	offset := func(t time.Time) time.Duration {
		_, seconds := t.In(zone).Zone()
		return time.Duration(seconds) * time.Second
	}
	old := offset(wall.Add(-24 * time.Hour))
	early := wall.Add(-old)
	if offset(early) == old {
		return early
	}
	late := wall.Add(-offset(early))
	if offset(late) == offset(early) {
		return late
	}
	// The clocks went over it, between late, which is before, and early.
	return late.Add(time.Duration(sort.Search(int(early.Sub(late)/time.Second), func(s int) bool {
		return offset(late.Add(time.Duration(s)*time.Second)) != old
	})) * time.Second)
}

// Before reports whether d is an earlier day.
func (d Day) Before(o Day) bool { return d.noon().Before(o.noon()) }

// zones is the tz database as Go distributes it: a test compares the copy with the
// toolchain's and says how to renew it. time.LoadLocation asks the machine
// first, and two machines with two databases would publish two calendars.
//
//go:embed zoneinfo.zip
var zones []byte

var database = sync.OnceValues(func() (*zip.Reader, error) {
	return zip.NewReader(bytes.NewReader(zones), int64(len(zones)))
})

// Zone returns the time zone of an IANA name, such as Europe/Berlin. "UTC" is one;
// "Local" and an empty name are not.
func Zone(name string) (*time.Location, error) {
	db, err := database()
	if err != nil {
		return nil, fmt.Errorf("tz database: %w", err)
	}
	f, err := db.Open(name)
	if err != nil {
		return nil, fmt.Errorf("unknown time zone %q", name)
	}
	defer f.Close() // only read
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w", name, err)
	}
	return time.LoadLocationFromTZData(name, data)
}

// ZoneNames lists what Zone knows, for suggestions.
func ZoneNames() []string {
	db, err := database()
	if err != nil {
		return nil
	}
	var out []string
	for _, f := range db.File {
		if !f.FileInfo().IsDir() {
			out = append(out, f.Name)
		}
	}
	return out
}
