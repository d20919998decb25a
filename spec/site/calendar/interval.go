// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"slices"
	"time"
)

// Interval is a span of time from From up to, and without, To.
type Interval struct{ From, To time.Time }

// overlaps reports whether two intervals have time in common.
func (i Interval) overlaps(o Interval) bool { return i.From.Before(o.To) && o.From.Before(i.To) }

// merge sorts intervals and joins those that overlap or touch.
func merge(list []Interval) []Interval {
	slices.SortFunc(list, func(a, b Interval) int { return a.From.Compare(b.From) })
	var out []Interval
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
func cut(list []Interval, span Interval) []Interval {
	var out []Interval
	for _, i := range list {
		if !i.overlaps(span) {
			out = append(out, i)
			continue
		}
		if i.From.Before(span.From) {
			out = append(out, Interval{i.From, span.From})
		}
		if span.To.Before(i.To) {
			out = append(out, Interval{span.To, i.To})
		}
	}
	return out
}
