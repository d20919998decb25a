// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/spec"
)

// fill sets everything in a value to what a report must not be shown with, and each
// time to one of at.
func fill(v reflect.Value, at func() time.Time) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(at()))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Repeat("<\x1b[2J\n\u202e\u2028é", 30))
	case reflect.Int, reflect.Int64:
		v.SetInt(math.MinInt64)
	case reflect.Uint64:
		v.SetUint(math.MaxUint64)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(-math.MaxFloat64)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), at)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 100, 100))
		for i := range v.Len() {
			fill(v.Index(i), at)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), at)
		}
	case reflect.Map:
		all := map[string]string{}
		for i := range 100 {
			all[strings.Repeat("k", i)+"\x00"] = strings.Repeat("<", 500)
		}
		v.Set(reflect.ValueOf(all))
	default:
		panic("a report has a " + v.Kind().String())
	}
}

// look checks everything in a value.
func look(t *testing.T, path string, v reflect.Value, now time.Time) {
	t.Helper()
	if v.Type() == reflect.TypeFor[time.Time]() {
		at := v.Interface().(time.Time)
		if !at.IsZero() && (at.Before(Earliest) || at.After(now.Add(maxAhead)) || at.Location() != time.UTC) {
			t.Errorf("%s is %s", path, at)
		}
		if (strings.HasSuffix(path, ".Since") || strings.HasSuffix(path, ".Time")) && at.After(now) {
			t.Errorf("%s is %s, later than it was received", path, at)
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		if s := v.String(); len(s) > maxText+len("…") || strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
			t.Errorf("%s is %.20q of %d bytes", path, s, len(s))
		}
	case reflect.Int, reflect.Int64:
		if v.Int() < 0 || v.Int() > maxNumber {
			t.Errorf("%s is %d", path, v.Int())
		}
	case reflect.Uint64:
		if v.Uint() > maxNumber {
			t.Errorf("%s is %d", path, v.Uint())
		}
	case reflect.Float64:
		if v.Float() < 0 || v.Float() > longestBoot {
			t.Errorf("%s is %g", path, v.Float())
		}
	case reflect.Pointer:
		look(t, path, v.Elem(), now)
	case reflect.Slice:
		if v.Len() > maxList {
			t.Errorf("%s has %d", path, v.Len())
		}
		for i := range v.Len() {
			look(t, path, v.Index(i), now)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			look(t, path+"."+v.Type().Field(i).Name, v.Field(i), now)
		}
	case reflect.Map:
		if v.Len() > maxList {
			t.Errorf("%s has %d", path, v.Len())
		}
		for name, value := range v.Seq2() {
			look(t, path+"[]", name, now)
			look(t, path+"[]", value, now)
		}
	}
}

// TestBounds: whatever a report says, in any field, what is kept of it can be shown and
// sent on, and has a bound.
func TestBounds(t *testing.T) {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	year := func(y int) func() time.Time {
		return func() time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.FixedZone("x", 86340)) }
	}
	turn := 0
	mixed := func() time.Time { turn++; return year([]int{0, 1, 1969, 2026, 2027, 9999}[turn%6])() }
	for what, at := range map[string]func() time.Time{"before time": year(0), "the end of time": year(9999), "1970": year(1970), "all at once": mixed} {
		t.Run(what, func(t *testing.T) {
			var r spec.Report
			fill(reflect.ValueOf(&r).Elem(), at)
			Bound(&r, now)
			look(t, "Report", reflect.ValueOf(r), now)
			if !r.Time.Equal(now) || r.More < 2*(100-maxList) {
				t.Errorf("it is of %s, and %d more", r.Time, r.More)
			}
			once, err := spec.Encode(r)
			if err != nil {
				t.Fatal(err)
			}
			Bound(&r, now)
			if twice, err := spec.Encode(r); err != nil || string(once) != string(twice) {
				t.Errorf("bounded twice it is another: %v\n%s", err, cmp.Diff(string(once), string(twice)))
			}
		})
	}
}

// TestTheNodesClockIsADifference: a clock that is wrong by years says how long ago
// something was, and no more.
func TestTheNodesClockIsADifference(t *testing.T) {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	for _, off := range []time.Duration{0, time.Hour, -time.Hour, 24 * 365 * time.Hour, -24 * 365 * 56 * time.Hour} {
		clock := now.Add(off)
		r := &spec.Report{Time: clock, NextWindow: &spec.NextWindow{Interval: spec.Interval{From: clock.Add(time.Hour), To: clock.Add(2 * time.Hour)}},
			Expires: now.Add(90 * 24 * time.Hour), Drift: []spec.Drift{{Since: clock.Add(-time.Minute)}},
			Axes: spec.Axes{Health: spec.Axis{Since: clock.Add(-10 * time.Minute)}, Sync: spec.Axis{Since: clock.Add(time.Hour)}, Tracking: spec.Axis{Until: clock.Add(3 * time.Hour)}}}
		Bound(r, now)
		for what, c := range map[string]struct{ got, want time.Time }{
			"health":                  {r.Axes.Health.Since, now.Add(-10 * time.Minute)},
			"what is yet to come":     {r.Axes.Sync.Since, now},
			"a hold":                  {r.Axes.Tracking.Until, now.Add(3 * time.Hour)},
			"drift":                   {r.Drift[0].Since, now.Add(-time.Minute)},
			"a window":                {r.NextWindow.From, now.Add(time.Hour)},
			"its end":                 {r.NextWindow.To, now.Add(2 * time.Hour)},
			"the overlay's signature": {r.Expires, now.Add(90 * 24 * time.Hour)},
			"nothing":                 {r.Axes.Activity.Since, time.Time{}},
		} {
			if !c.got.Equal(c.want) {
				t.Errorf("a clock off by %s: %s is %s, want %s", off, what, c.got, c.want)
			}
		}
	}
}
