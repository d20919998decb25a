// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// TestZones finds a zone that is spelled right, and no other: what a machine has in
// /usr/share/zoneinfo does not matter.
func TestZones(t *testing.T) {
	t.Setenv("ZONEINFO", "/nonexistent")
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires"} {
		if z, err := Zone(name); err != nil || z.String() != name {
			t.Errorf("Zone(%q) = %v, %v", name, z, err)
		}
	}
	for _, name := range []string{"", "Local", "europe/berlin", "Europe", "Europe/", "../UTC", "/etc/localtime", "Mars/Olympus"} {
		if z, err := Zone(name); err == nil {
			t.Errorf("Zone(%q) = %v", name, z)
		}
	}
	if n := len(ZoneNames()); n < 400 {
		t.Errorf("%d zones", n)
	}
}

// TestZonesAreTheToolchains says when the copy is old.
func TestZonesAreTheToolchains(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("there is no toolchain to compare with: ", err)
	}
	theirs, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib/time/zoneinfo.zip"))
	if err != nil {
		t.Skip("the toolchain has no lib/time/zoneinfo.zip: ", err)
	}
	if !bytes.Equal(theirs, zones) {
		t.Error("the toolchain brings another tz database: cp $(go env GOROOT)/lib/time/zoneinfo.zip spec/site/calendar/")
	}
}

// TestAtShowsTheTime asks of random days what the definition says: the clocks show the
// time, and did not show it before on that day; or no instant of the day shows it, and
// the instant is where they went over it.
func TestAtShowsTheTime(t *testing.T) {
	names := ZoneNames()
	r := rand.New(rand.NewPCG(1, 2))
	gaps, twice := 0, 0
	for range 5000 {
		name := names[r.IntN(len(names))]
		zone, err := Zone(name)
		if err != nil {
			t.Fatal(err)
		}
		d := Day{1990 + r.IntN(60), time.January, 1}.Add(r.IntN(366))
		if r.IntN(2) == 0 { // most days are dull
			for n := 0; n < 366 && same(zone, d, d.Add(1)); n++ {
				d = d.Add(1)
			}
			d = d.Add(1) // at night
		}
		clock := time.Duration(r.IntN(24*60)) * time.Minute
		at := d.At(clock, zone)
		want := d.String() + clockText(clock)
		switch shown := at.In(zone).Format("2006-01-02 15:04"); {
		case shown == want:
			for _, back := range []time.Duration{20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 24 * time.Hour} {
				if at.Add(-back).In(zone).Format("2006-01-02 15:04") == want {
					t.Errorf("%s %s: %v is not the first", name, want, at)
				}
			}
			for _, on := range []time.Duration{30 * time.Minute, time.Hour} {
				if at.Add(on).In(zone).Format("2006-01-02 15:04") == want {
					twice++
				}
			}
		case shown > want && at.Add(-time.Second).In(zone).Format("2006-01-02 15:04") < want:
			gaps++
		default:
			t.Errorf("%s %s: %v shows %s", name, want, at, shown)
		}
	}
	if gaps == 0 || twice == 0 {
		t.Errorf("%d times that do not exist, %d that occur twice: the days prove nothing", gaps, twice)
	}
}

// same reports whether the clocks run on from one day to another.
func same(zone *time.Location, a, b Day) bool {
	_, before := a.noon().In(zone).Zone()
	_, after := b.noon().In(zone).Zone()
	return before == after
}

func clockText(c time.Duration) string {
	return " " + time.Time{}.Add(c).Format("15:04")
}

// TestAlwaysOpenEnds asks for a window without gaps: it is followed for a year to both
// sides, not for ever.
func TestAlwaysOpenEnds(t *testing.T) {
	w := window(t, "Europe/Berlin", "weekly mon,tue,wed,thu,fri,sat,sun 00:00", "25h", "")
	now := when(t, "2026-11-21T12:00Z")
	got := w.Intervals(spec.Interval{From: now, To: now.Add(time.Hour)})
	if len(got) != 1 {
		t.Fatalf("%d intervals", len(got))
	}
	if from, to := now.Sub(got[0].From), got[0].To.Sub(now); from < reach-48*time.Hour || to < reach-48*time.Hour || from > reach+48*time.Hour || to > reach+48*time.Hour {
		t.Errorf("from %v before to %v after", from, to)
	}
}

// TestIntervalsAgree asks for random spans: what one span shows, a longer one shows,
// too, so neither the day of publishing nor the span moves a window.
func TestIntervalsAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	rules := []string{"weekly sat 22:00", "nth -1 sun 02:30", "day 31 23:45", "weekly mon,tue,wed 00:00", "weekly fri 12:00 + weekly sat 12:00"}
	for range 300 {
		w := window(t, "Europe/Berlin", rules[r.IntN(len(rules))], []string{"30m", "4h", "24h", "3d"}[r.IntN(4)], "2026-12-23..2027-01-02")
		from := when(t, "2026-01-01T00:00Z").Add(time.Duration(r.IntN(600*24*60)) * time.Minute)
		short := spec.Interval{From: from, To: from.Add(time.Duration(1+r.IntN(60*24*60)) * time.Minute)}
		long := spec.Interval{From: short.From.AddDate(0, -2, 0), To: short.To.AddDate(0, 2, 0)}
		var want []spec.Interval
		for _, i := range w.Intervals(long) {
			if overlap(i, short) {
				want = append(want, i)
			}
		}
		if got := w.Intervals(short); text(got) != text(want) {
			t.Errorf("%v of %v:\n got %s\nwant %s", short, w.Opens, text(got), text(want))
		}
	}
}

func text(list []spec.Interval) string {
	var b strings.Builder
	for _, i := range list {
		b.WriteString(i.From.Format(minute) + "/" + i.To.Format(minute) + " ")
	}
	return b.String()
}

func BenchmarkFourMonthsOfNights(b *testing.B) {
	zone, err := Zone("America/New_York")
	if err != nil {
		b.Fatal(err)
	}
	w := Window{Opens: []Rule{{Weekly{0, 1, 2, 3, 4, 5, 6}, 22 * time.Hour}}, Duration: 4 * time.Hour, Zone: zone}
	from := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for b.Loop() {
		if n := len(w.Intervals(spec.Interval{From: from, To: from.AddDate(0, 4, 0)})); n != 120 {
			b.Fatal(n)
		}
	}
}

// TestEqualRulesOnce: rules that say the same are gathered once a day, and not at the end of two
// years.
func TestEqualRulesOnce(t *testing.T) {
	rules := make([]Rule, 2000)
	for i := range rules {
		rules[i] = Rule{Days: Weekly{time.Saturday}, At: 22 * time.Hour}
	}
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	span := spec.Interval{From: from, To: from.AddDate(2, 0, 0)}
	got, want := instants(rules, time.UTC, span), instants(rules[:1], time.UTC, span)
	if !slices.Equal(got, want) || len(want) < 104 {
		t.Errorf("%d times, want %d", len(got), len(want))
	}
	if cap(got) > 10_000 {
		t.Errorf("%d times were gathered", cap(got))
	}
}
