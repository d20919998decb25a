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
	"slices"
	"time"

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
	Opens    []Rule
	Duration time.Duration
	Zone     *time.Location
	Except   []Exception
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
	var out []spec.Interval
	for _, at := range Instants(w.Opens, w.Zone, span) {
		out = append(out, spec.Interval{From: at, To: at.Add(w.Duration)})
	}
	out = merge(out)
	for _, e := range w.Except {
		out = cut(out, spec.Interval{From: e.First.At(0, w.Zone).UTC(), To: e.Last.Add(1).At(0, w.Zone).UTC()})
	}
	return out
}

// Instants returns when rules begin within a span, in UTC, in order and each once.
func Instants(rules []Rule, zone *time.Location, span spec.Interval) []time.Time {
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
