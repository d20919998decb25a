// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/google/go-cmp/cmp"
)

const minute = "2006-01-02T15:04Z07:00"

// TestRows holds the calendar against intervals that another implementation made.
func TestRows(t *testing.T) {
	data, err := os.ReadFile("testdata/rows.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for n, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		rows++
		f := strings.Split(line+" ", " | ")
		if len(f) == 7 {
			f = append(f, "") // never open
		}
		t.Run(fmt.Sprintf("%d %s", n+1, f[0]), func(t *testing.T) {
			w := window(t, f[1], f[2], f[3], f[4])
			var got []string
			for _, i := range w.Intervals(spec.Interval{From: when(t, f[5]), To: when(t, f[6])}) {
				got = append(got, i.From.UTC().Format(minute)+"/"+i.To.UTC().Format(minute))
			}
			if diff := cmp.Diff(strings.Fields(f[7]), got, cmp.Transformer("", func(s []string) string { return strings.Join(s, " ") })); diff != "" {
				t.Errorf("%s\n%s", line, diff)
			}
		})
	}
	if rows < 120 {
		t.Errorf("only %d rows", rows)
	}
}

func when(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(minute, strings.TrimSuffix(strings.TrimSpace(s), " |"))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func window(t *testing.T, zone, rules, duration, except string) Window {
	t.Helper()
	z, err := Zone(zone)
	if err != nil {
		t.Fatal(err)
	}
	w := Window{Zone: z, Duration: span(t, duration)}
	for _, r := range strings.Split(rules, " + ") {
		w.Opens = append(w.Opens, rule(t, strings.Fields(r)))
	}
	for _, e := range strings.FieldsFunc(except, func(r rune) bool { return r == ',' }) {
		first, last, _ := strings.Cut(strings.TrimSpace(e), "..")
		w.Except = append(w.Except, Exception{day(t, first), day(t, last)})
	}
	return w
}

func rule(t *testing.T, f []string) Rule {
	t.Helper()
	at, err := time.Parse("15:04", f[len(f)-1])
	if err != nil {
		t.Fatal(err)
	}
	r := Rule{At: time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute}
	switch f[0] {
	case "weekly":
		var w Weekly
		for _, name := range strings.Split(f[1], ",") {
			w = append(w, weekday(name))
		}
		r.Days = w
	case "nth":
		r.Days = NthWeekday{number(t, f[1]), weekday(f[2])}
	case "day":
		r.Days = MonthDay(number(t, f[1]))
	case "date":
		r.Days = day(t, f[1])
	}
	return r
}

func weekday(name string) time.Weekday {
	return time.Weekday(slices.Index([]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, name))
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func day(t *testing.T, s string) Day {
	t.Helper()
	d, err := ParseDay(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func span(t *testing.T, s string) time.Duration {
	t.Helper()
	if days, ok := strings.CutSuffix(s, "d"); ok {
		return time.Duration(number(t, days)) * 24 * time.Hour
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
