// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"fmt"
	"io"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// Openings are the times at which windows are open, for people and programs.
type Openings struct {
	Windows []WindowOpenings `json:"windows"`
}

// WindowOpenings are the times at which one window is open, in order.
type WindowOpenings struct {
	Name      string          `json:"name"`
	Intervals []spec.Interval `json:"intervals"`

	zone *time.Location
}

// Openings returns when the windows are open: whole intervals that overlap the span.
func (m Maintenance) Openings(span spec.Interval) Openings {
	out := Openings{Windows: []WindowOpenings{}}
	for _, w := range m.Windows {
		out.Windows = append(out.Windows, WindowOpenings{Name: w.Name, Intervals: append([]spec.Interval{}, w.Intervals(span)...), zone: w.Zone})
	}
	return out
}

// Write prints the openings in each window's own zone, and how long each lasts.
func (o Openings) Write(w io.Writer) error {
	for _, window := range o.Windows {
		if _, err := fmt.Fprintf(w, "%s (%s)\n", window.Name, window.zone); err != nil {
			return err
		}
		if len(window.Intervals) == 0 {
			if _, err := fmt.Fprintln(w, "  never open in this time"); err != nil {
				return err
			}
		}
		for _, i := range window.Intervals {
			const layout = "Mon 2006-01-02 15:04 MST"
			if _, err := fmt.Fprintf(w, "  %s to %s, %s\n", i.From.In(window.zone).Format(layout), i.To.In(window.zone).Format(layout), length(i.To.Sub(i.From))); err != nil {
				return err
			}
		}
	}
	return nil
}

// length writes a duration of whole minutes: 4h, 1d12h, 90m.
func length(d time.Duration) string {
	days, rest := d/(24*time.Hour), d%(24*time.Hour)
	out := ""
	for _, part := range []struct {
		n    time.Duration
		unit string
	}{{days, "d"}, {rest / time.Hour, "h"}, {rest % time.Hour / time.Minute, "m"}} {
		if part.n > 0 {
			out += fmt.Sprintf("%d%s", part.n, part.unit)
		}
	}
	return out
}
