// SPDX-License-Identifier: Apache-2.0

// Package calendar turns the rules of a maintenance window into intervals of UTC, so
// that a node compares a clock with numbers and needs neither time zones nor rules.
//
// A rule names the day on which a window opens; from there elapsed time counts, so
// neither midnight nor a clock change moves where it closes. A local time that does
// not exist opens at the next one that does, one that occurs twice at the first.
// Exceptions cut, they do not shift. The package reads no clock and no file: zones
// come from a copy of the tz database that is linked in, the same on every machine
// that publishes.
package calendar

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// MaxDuration is the longest that one opening lasts.
const MaxDuration = 31 * 24 * time.Hour

// MaxRules is how many rules a window has at most, and how many exceptions.
const MaxRules = 512

// reach is how far beyond a span an interval is followed that touches the next one: a
// window that is always open has no end.
const reach = 366 * 24 * time.Hour

// Rule is when something begins: a time, counted from midnight, on certain days.
type Rule struct {
	Days Days
	At   time.Duration
}

// Exception is days on which a window is closed, First and Last among them.
type Exception struct{ First, Last Day }

// Window is when something may happen: from each beginning on for a duration,
// except where it is cut.
type Window struct {
	Name       string
	Opens      []Rule
	Duration   time.Duration
	Zone       *time.Location
	Except     []Exception
	StartGuard time.Duration
	Stop       bool // what still runs when it closes is stopped
}

// Intervals returns when the window is open, in UTC and in order: whole intervals
// that overlap the span, with those that touch joined.
func (w Window) Intervals(span spec.Interval) []spec.Interval {
	// What touches an interval of the span may lie outside it.
	for wide := MaxDuration; ; wide *= 2 {
		wide = min(wide, reach)
		around := spec.Interval{From: span.From.Add(-wide), To: span.To.Add(wide)}
		all := w.open(around)
		at := slices.IndexFunc(all, func(i spec.Interval) bool { return overlap(i, span) })
		if at < 0 {
			return nil
		}
		all = all[at:]
		if end := slices.IndexFunc(all, func(i spec.Interval) bool { return !overlap(i, span) }); end >= 0 {
			all = all[:end]
		}
		inside := all[0].From.After(around.From.Add(MaxDuration)) && all[len(all)-1].To.Before(around.To)
		if inside || wide == reach {
			return all
		}
	}
}

// open returns what begins within a span, joined and cut.
func (w Window) open(span spec.Interval) []spec.Interval {
	out := merge(plain.Each(instants(w.Opens, w.Zone, span), func(at time.Time) spec.Interval {
		return spec.Interval{From: at, To: at.Add(w.Duration)}
	}))
	for _, e := range w.Except {
		out = cut(out, spec.Interval{From: e.First.At(0, w.Zone).UTC(), To: e.Last.Add(1).At(0, w.Zone).UTC()})
	}
	return out
}

// instants returns when rules begin within a span, in UTC, in order and each once.
func instants(rules []Rule, zone *time.Location, span spec.Interval) []time.Time {
	var out []time.Time
	last := DayOf(span.To.In(zone)).Add(1)
	for d := DayOf(span.From.In(zone)).Add(-1); d != last; d = d.Add(1) {
		before := len(out)
		for _, r := range rules {
			if !r.Days.On(d) {
				continue
			}
			if at := d.At(r.At, zone); !at.Before(span.From) && at.Before(span.To) {
				out = append(out, at)
			}
		}
		out = out[:before+len(once(out[before:]))] // equal rules are one each day, not at the end
	}
	return once(out)
}

// once returns times in order and each once.
func once(times []time.Time) []time.Time {
	slices.SortFunc(times, time.Time.Compare)
	return slices.CompactFunc(times, time.Time.Equal)
}

// overlap reports whether two intervals have time in common.
func overlap(i, o spec.Interval) bool { return i.From.Before(o.To) && o.From.Before(i.To) }

// merge sorts intervals and joins those that overlap or touch.
func merge(list []spec.Interval) []spec.Interval {
	slices.SortFunc(list, func(a, b spec.Interval) int { return a.From.Compare(b.From) })
	var out []spec.Interval
	for _, i := range list {
		if n := len(out); n > 0 && !i.From.After(out[n-1].To) {
			if i.To.After(out[n-1].To) {
				out[n-1].To = i.To
			}
			continue
		}
		out = append(out, i)
	}
	return out
}

// cut takes a span out of intervals.
func cut(list []spec.Interval, span spec.Interval) []spec.Interval {
	var out []spec.Interval
	for _, i := range list {
		if !overlap(i, span) {
			out = append(out, i)
			continue
		}
		if i.From.Before(span.From) {
			out = append(out, spec.Interval{From: i.From, To: span.From})
		}
		if span.To.Before(i.To) {
			out = append(out, spec.Interval{From: span.To, To: i.To})
		}
	}
	return out
}

// Days are the days on which something begins.
type Days interface {
	// On reports whether a day is one of them.
	On(Day) bool
}

// Weekly are the named days of every week.
type Weekly []time.Weekday

// On implements Days.
func (w Weekly) On(d Day) bool { return slices.Contains(w, d.Weekday()) }

// NthWeekday is one weekday of every month: the first is 1, the fifth exists in some
// months only, -1 is the last.
type NthWeekday struct {
	Nth     int
	Weekday time.Weekday
}

// On implements Days.
func (n NthWeekday) On(d Day) bool {
	if d.Weekday() != n.Weekday {
		return false
	}
	if n.Nth < 0 {
		return (d.last()-d.Day)/7 == -n.Nth-1
	}
	return (d.Day-1)/7 == n.Nth-1
}

// MonthDay is one day of every month that has it: 31 is in seven of them, -1 is the
// last day.
type MonthDay int

// On implements Days.
func (m MonthDay) On(d Day) bool {
	if m < 0 {
		return d.Day == d.last()+1+int(m)
	}
	return d.Day == int(m)
}

// On reports whether it is the same day: a date is one day, once.
func (d Day) On(other Day) bool { return d == other }

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
	return plain.Pick(db.File, func(f *zip.File) (string, bool) { return f.Name, !f.FileInfo().IsDir() })
}
