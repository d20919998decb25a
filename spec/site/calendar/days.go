// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"slices"
	"time"
)

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
