// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"slices"

	"github.com/caisson-os/caisson/spec"
)

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
