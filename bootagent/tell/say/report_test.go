// SPDX-License-Identifier: Apache-2.0

package say

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// Where the overlay names nobody to report to there is no report; what a site may not say
// of reports, a signature does not make right.
func TestReporting(t *testing.T) {
	if to, err := Reporting(&spec.Overlay{Agent: &spec.Agent{Poll: 900}}); to != nil || err != nil {
		t.Errorf("%+v, %v", to, err)
	}
	if to, err := Reporting(new(spec.Overlay)); to != nil || err != nil {
		t.Errorf("%+v, %v", to, err)
	}
	to, err := Reporting(&spec.Overlay{Agent: &spec.Agent{Report: &spec.Reporting{Registry: "registry.example/metal", Interval: 60}}})
	if to != nil || err == nil || !strings.Contains(err.Error(), "once in 1h0m0s at most") {
		t.Errorf("%+v, %v", to, err)
	}
	to, err = Reporting(&spec.Overlay{Agent: &spec.Agent{Report: &spec.Reporting{URL: "https://fleet.example", Interval: 300}}})
	if err != nil || to == nil || to.Interval != 300 {
		t.Errorf("%+v, %v", to, err)
	}
}

func TestNextWindow(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 11, 21, hour, 0, 0, 0, time.UTC) }
	m := &spec.Maintenance{Windows: map[string]spec.Window{
		"night": {Intervals: []spec.Interval{{From: at(1), To: at(4)}, {From: at(22), To: at(23)}}},
		"noon":  {Intervals: []spec.Interval{{From: at(12), To: at(13)}}},
		"past":  {Intervals: []spec.Interval{{From: at(0), To: at(1)}}},
	}}
	for hour, want := range map[int]string{2: "night", 5: "noon", 12: "noon", 13: "night"} {
		if got := nextWindow(m, at(hour)); got == nil || got.Name != want {
			t.Errorf("at %d: %+v, want %s", hour, got, want)
		}
	}
	if got := nextWindow(m, at(23)); got != nil {
		t.Errorf("after the last one: %+v", got)
	}
	if got := nextWindow(nil, at(2)); got != nil {
		t.Errorf("without maintenance: %+v", got)
	}
}
