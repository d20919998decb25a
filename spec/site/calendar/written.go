// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// WindowSpecDoc is a [Window] as it is written.
type WindowSpecDoc struct {
	TimeZone   shape.Text     `site:"timeZone,required" doc:"IANA name, for example Europe/Berlin"`
	Opens      []ruleDoc      `site:"opens,required" doc:"when it opens: all of these together"`
	Duration   shape.Duration `site:"duration,required" doc:"how long it stays open, in elapsed time, as in 4h; at most 31d"`
	StartGuard shape.Pause    `site:"startGuard" doc:"time before the window closes in which nothing that disturbs starts; none when absent"`
	OnClose    shape.Text     `site:"onClose" enum:"finish,stop" doc:"what becomes of operations that run when it closes; finish when absent"`
	Except     []exceptDoc    `site:"except" doc:"days on which the window is closed"`
}

// ruleDoc is one rule of a calendar as it is written: days, and a time on them.
type ruleDoc struct {
	Weekly  shape.Words `site:"weekly" doc:"days of the week: mon, tue, wed, thu, fri, sat, sun"`
	Monthly *monthlyDoc `site:"monthly" doc:"one day of every month"`
	Date    shape.Text  `site:"date" doc:"one day: YYYY-MM-DD"`
	Time    shape.Text  `site:"at,required" doc:"local time: \"HH:MM\""`
	At      report.Pos
}

type monthlyDoc struct {
	Nth     shape.Number `site:"nth" doc:"which weekday of the month, with weekday: 1 to 5, or -1 for the last"`
	Weekday shape.Text   `site:"weekday" enum:"mon,tue,wed,thu,fri,sat,sun"`
	Day     shape.Number `site:"day" doc:"day of the month, 1 to 31, or -1 for the last; months without the day are left out"`
	At      report.Pos
}

type exceptDoc struct {
	From   shape.Text `site:"from,required" doc:"first day: YYYY-MM-DD"`
	To     shape.Text `site:"to" doc:"last day; the first one when absent"`
	Reason shape.Text `site:"reason"`
	At     report.Pos
}

// Check makes a window of what is written, and reports what is wrong with it.
func (d WindowSpecDoc) Check(c *shape.Checker, name shape.Text) Window {
	w := Window{Name: name.S, Duration: d.Duration.D, StartGuard: d.StartGuard.D, Stop: d.OnClose.S == "stop"}
	if z := d.TimeZone; z.Set() {
		w.Zone = zone(c, z)
	}
	c.In("opens", func() {
		w.Opens = each(c, name, d.Opens, ruleDoc.check)
		c.Refuse(d.Opens != nil && len(d.Opens) == 0, name.At, "calendar", "as in: opens: [{weekly: [sat], at: \"22:00\"}]",
			"the window %s never opens", w.Name)
	})
	if l := d.Duration; l.Set() && l.D > MaxDuration {
		c.In("duration", func() {
			c.Errorf(l.At, "range", "write rules that open it again", "a window is open for at most 31 days")
		})
	}
	if g := d.StartGuard; g.Set() && w.Duration > 0 && g.D >= w.Duration {
		c.In("startGuard", func() {
			c.Errorf(g.At, "range", "a startGuard is shorter than the duration", "nothing could ever start in the window %s", w.Name)
		})
	}
	c.In("except", func() { w.Except = each(c, name, d.Except, exceptDoc.check) })
	return w
}

// During returns what a node is sent of a window for a span.
func (w Window) During(span spec.Interval) spec.Window {
	out := spec.Window{Intervals: append([]spec.Interval{}, w.Intervals(span)...), StartGuard: int64(w.StartGuard / time.Second)}
	if w.Stop {
		out.OnClose = "stop"
	}
	return out
}

// each returns what as many entries of a list are as a window may have, and reports that there are more.
func each[D, T any](c *shape.Checker, window shape.Text, list []D, check func(D, *shape.Checker) (T, bool)) (out []T) {
	c.Refuse(len(list) > MaxRules, window.At, "range", "write another window: a NodeMaintenance names several",
		"the window has %d entries here, and at most %d", len(list), MaxRules)
	for i, e := range list[:min(len(list), MaxRules)] {
		c.In(shape.Nth(i), func() {
			if one, ok := check(e, c); ok {
				out = append(out, one)
			}
		})
	}
	return out
}

// zone returns a named time zone, or reports that there is none.
func zone(c *shape.Checker, name shape.Text) *time.Location {
	z, err := Zone(name.S)
	if err != nil {
		c.In("timeZone", func() { c.Errorf(name.At, "time-zone", zoneHint(name.S), "%v", err) })
	}
	return z
}

// zoneHint says what a zone may have been meant to be: often a city without its
// continent, or another case.
func zoneHint(name string) string {
	all := ZoneNames()
	for _, z := range all {
		if _, city, _ := strings.Cut(z, "/"); name != "" && strings.EqualFold(city, strings.ReplaceAll(name, " ", "_")) {
			return "did you mean " + z + "?"
		}
	}
	return cmp.Or(report.DidYouMean(name, all), "an IANA name, for example Europe/Berlin or UTC")
}

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} // as time.Weekday

// check reads one rule, and reports whether it could.
func (d ruleDoc) check(c *shape.Checker) (Rule, bool) {
	if ways := rules.Given(d.Weekly.Set(), d.Monthly != nil, d.Date.Set()); ways != 1 {
		c.Errorf(d.At, "calendar", "as in {weekly: [sat], at: \"22:00\"}", "a rule has one of weekly, monthly and date, this one has %d", ways)
		return Rule{}, false
	}
	at, err := time.Parse("15:04", d.Time.S)
	if d.Time.Set() && err != nil {
		c.In("at", func() {
			c.Errorf(d.Time.At, "calendar", "hours and minutes in quotes, as in \"22:00\"", "%q is not a time of the day", d.Time.S)
		})
	}
	r := Rule{At: time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute}
	ok := d.Time.Set() && err == nil
	switch {
	case d.Weekly.Set():
		days, good := weekly(c, d.Weekly)
		r.Days, ok = days, ok && good
	case d.Monthly != nil:
		days, good := d.Monthly.check(c)
		r.Days, ok = days, ok && good
	default:
		day, good := date(c, "date", d.Date)
		r.Days, ok = day, ok && good
	}
	return r, ok
}

func weekly(c *shape.Checker, w shape.Words) (Weekly, bool) {
	var out Weekly
	for _, name := range w.List {
		n := slices.Index(weekdays, name)
		if n < 0 {
			c.In("weekly", func() {
				c.Errorf(w.At, "calendar", report.DidYouMean(name, weekdays), "%q is not a day of the week", name)
			})
			return nil, false
		}
		out = append(out, time.Weekday(n))
	}
	if len(out) == 0 {
		c.In("weekly", func() { c.Errorf(w.At, "calendar", report.DidYouMean("", weekdays), "no day of the week is named") })
	}
	return out, len(out) > 0
}

func (d monthlyDoc) check(c *shape.Checker) (days Days, ok bool) {
	c.In("monthly", func() {
		n := d.Nth.N
		switch {
		case d.Day.Set() == (d.Nth.Set() || d.Weekday.Set()), d.Nth.Set() != d.Weekday.Set():
			c.Errorf(d.At, "calendar", "as in {nth: 2, weekday: tue} or {day: 15}", "a monthly rule has either nth and weekday, or day")
		case d.Day.Set() && (d.Day.N < -1 || d.Day.N == 0 || d.Day.N > 31):
			c.Errorf(d.Day.At, "range", "1 to 31, or -1 for the last day", "no month has a day %d", d.Day.N)
		case d.Day.Set():
			days, ok = MonthDay(d.Day.N), true
		case n < -1 || n == 0 || n > 5:
			c.Errorf(d.Nth.At, "range", "1 to 5, or -1 for the last", "no month has a weekday number %d", n)
		default:
			w := slices.Index(weekdays, d.Weekday.S)
			days, ok = NthWeekday{Nth: int(n), Weekday: time.Weekday(w)}, w >= 0 // else said already
		}
	})
	return days, ok
}

func (d exceptDoc) check(c *shape.Checker) (Exception, bool) {
	first, ok := date(c, "from", d.From)
	last := first
	if d.To.Set() {
		var good bool
		last, good = date(c, "to", d.To)
		ok = ok && good
	}
	if ok && last.Before(first) {
		c.Errorf(d.To.At, "range", "to is the last day, from the first", "the exception ends before it begins")
		return Exception{}, false
	}
	return Exception{First: first, Last: last}, ok
}

func date(c *shape.Checker, field string, t shape.Text) (Day, bool) {
	d, err := ParseDay(t.S)
	if t.Set() && err != nil {
		c.In(field, func() { c.Errorf(t.At, "calendar", "YYYY-MM-DD, as in 2026-12-29", "%q is not a day", t.S) })
	}
	return d, err == nil
}

// maxADay is how often an operation runs on one day; a script of conf.exec has an
// interval.
const maxADay = 24

const maxJitter = 24 * time.Hour

// ScheduleDoc is a [Schedule] as it is written.
type ScheduleDoc struct {
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
func (*ScheduleDoc) Example(instead *tree.Value) string {
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

// Schedule is when an operation of type cron runs.
type Schedule struct {
	Jitter  time.Duration
	CatchUp bool
	rules   []Rule
	zone    *time.Location
}

// Check reads a schedule whose zone is that of a window where it names none.
func (d *ScheduleDoc) Check(c *shape.Checker, windows []Window) Schedule {
	if d.At == (report.Pos{}) || !d.Times.Set() {
		return Schedule{} // said already
	}
	s := Schedule{Jitter: d.Jitter.D, CatchUp: d.CatchUp.On}
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

// Runs returns the times of a span, in UTC.
func (s Schedule) Runs(span spec.Interval) []time.Time {
	return plain.Each(instants(s.rules, s.zone, span), time.Time.UTC)
}

// Horizon returns the span that is published at a time: from the first of its month
// to the first of the fourth month after. The same site gives the same span all month.
func Horizon(now time.Time) spec.Interval {
	y, m, _ := now.UTC().Date()
	return spec.Interval{From: time.Date(y, m, 1, 0, 0, 0, 0, time.UTC), To: time.Date(y, m+4, 1, 0, 0, 0, 0, time.UTC)}
}

// maxSpan bounds what is listed at a time.
const maxSpan = 2 * 366 * 24 * time.Hour

// ParseSpan reads a span as people give it: from now when that is empty, until the end of the [Horizon].
func ParseSpan(from, until string, now time.Time) (spec.Interval, error) {
	span := spec.Interval{From: now}
	if err := moment(&span.From, "--from", from); err != nil {
		return span, err
	}
	span.To = Horizon(span.From).To
	if err := moment(&span.To, "--until", until); err != nil {
		return span, err
	}
	if !span.From.Before(span.To) || span.To.Sub(span.From) > maxSpan {
		return span, report.Invalidf("at most two years later", "--until must be after --from")
	}
	return span, nil
}

// moment reads a time, if it was given.
func moment(into *time.Time, flag, text string) error {
	if text == "" {
		return nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			*into = t
			return nil
		}
	}
	return report.Invalidf("as in 2026-11-21 or 2026-11-21T22:00:00Z", "%s: %q is not a time", flag, text)
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

// OpeningsOf returns when windows are open: whole intervals that overlap the span.
func OpeningsOf(windows []Window, span spec.Interval) Openings {
	return Openings{append([]WindowOpenings{}, plain.Each(windows, func(w Window) WindowOpenings {
		return WindowOpenings{Name: w.Name, Intervals: w.During(span).Intervals, zone: w.Zone}
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
				i.To.In(window.zone).Format(layout), Length(i.To.Sub(i.From))); err != nil {
				return err
			}
		}
	}
	return nil
}

// Length writes a duration of whole minutes: 4h, 1d12h, 90m.
func Length(d time.Duration) string {
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
