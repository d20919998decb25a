// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/calendar"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// maxADay is how often an operation runs on one day; a script of conf.exec has an
// interval.
const maxADay = 24

const maxJitter = 24 * time.Hour

// scheduleDoc is when an operation of type cron runs, as it is written.
type scheduleDoc struct {
	Weekly   shape.Words `site:"weekly"`
	Monthly  *monthlyDoc `site:"monthly"`
	Date     shape.Text  `site:"date"`
	Times    shape.Words `site:"at,required" as:"\"03:00\"" doc:"local times of those days, at most 24"`
	TimeZone shape.Text  `site:"timeZone" doc:"time zone; that of the first window when absent"`
	Jitter   shape.Pause `site:"jitter" doc:"each node runs later, by a part of this that is its own and does not change"`
	CatchUp  shape.Flag  `site:"catchUp" doc:"a node that missed runs makes up for them with one run when it can"`
	At       report.Pos
}

var cronLine = regexp.MustCompile(`^([0-9]{1,2}) ([0-9]{1,2}) \* \* ([0-7*])$`)

// Example shows a line of crontab(5) as a schedule.
func (*scheduleDoc) Example(instead *tree.Value) string {
	line := instead
	for _, f := range instead.Fields {
		line = f.Val // of a key cron
	}
	m := cronLine.FindStringSubmatch(strings.Join(shape.Line(line), " "))
	if m == nil {
		return `{weekly: [sun], at: "03:00"}: it is not a line of crontab(5)`
	}
	days := "[mon, tue, wed, thu, fri, sat, sun]"
	if m[3] != "*" {
		days = "[" + []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun"}[m[3][0]-'0'] + "]"
	}
	return fmt.Sprintf("{weekly: %s, at: \"%02s:%02s\"}", days, m[2], m[1])
}

// schedule is when an operation runs.
type schedule struct {
	rules   []calendar.Rule
	zone    *time.Location
	jitter  time.Duration
	catchUp bool
}

// check reads a schedule whose zone is that of a window where it names none.
func (d *scheduleDoc) check(c *shape.Checker, windows []Window) schedule {
	if d.At == (report.Pos{}) || !d.Times.Set() {
		return schedule{} // said already
	}
	s := schedule{jitter: d.Jitter.D, catchUp: d.CatchUp.On}
	c.Refuse(len(d.Times.List) > maxADay, d.Times.At, "range", "a script of conf.exec has an interval",
		"an operation runs at most %d times a day", maxADay)
	for _, at := range d.Times.List[:min(len(d.Times.List), maxADay)] {
		r, ok := ruleDoc{Weekly: d.Weekly, Monthly: d.Monthly, Date: d.Date, Time: shape.Text{S: at, At: d.Times.At}, At: d.At}.check(c)
		if !ok {
			break
		}
		s.rules = append(s.rules, r)
	}
	c.Refuse(d.Jitter.D > maxJitter, d.Jitter.At, "range", "", "the jitter is at most a day")
	c.Refuse(d.Times.Set() && len(d.Times.List) == 0, d.Times.At, "calendar", "as in at: [\"03:00\"]", "no time is named")
	if len(windows) > 0 {
		s.zone = windows[0].Zone
	}
	switch {
	case d.TimeZone.Set():
		s.zone = zone(c, d.TimeZone)
	case s.zone == nil && len(windows) == 0:
		c.Errorf(d.At, "time-zone", "as in timeZone: Europe/Berlin", "without a window a schedule names its timeZone")
	}
	return s
}

// runs returns the times of a span, in UTC.
func (s schedule) runs(span spec.Interval) []time.Time {
	out := calendar.Instants(s.rules, s.zone, span)
	for i := range out {
		out[i] = out[i].UTC()
	}
	return out
}

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
	return Openings{append([]WindowOpenings{}, plain.Each(m.Windows, func(w Window) WindowOpenings {
		return WindowOpenings{Name: w.Name, Intervals: append([]spec.Interval{}, w.Intervals(span)...), zone: w.Zone}
	})...)}
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
			if _, err := fmt.Fprintf(w, "  %s to %s, %s\n", i.From.In(window.zone).Format(layout),
				i.To.In(window.zone).Format(layout), length(i.To.Sub(i.From))); err != nil {
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
