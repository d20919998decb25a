// SPDX-License-Identifier: Apache-2.0

package items

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

func TestWhatIsMissingForLongDegrades(t *testing.T) {
	begun := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	missing := func(since time.Time) []spec.Drift {
		return []spec.Drift{{Item: "sysctl", Key: "net/x/y", To: "1", Action: spec.ActionDefer, Reason: "there is no such key", Since: since}}
	}
	for _, tc := range []struct {
		name     string
		last     []spec.Drift
		up       time.Duration
		after    time.Duration
		degraded bool
		since    time.Duration
	}{
		{"new", nil, time.Hour, 0, false, 0},
		{"a moment", missing(begun), time.Hour, 9 * time.Minute, false, 0},
		{"long", missing(begun), time.Hour, 11 * time.Minute, true, 0},
		{"since before the clock was set", missing(begun.AddDate(-50, 0, 0)), time.Minute, 0, false, 0},
		{"since the future", missing(begun.Add(time.Hour)), time.Hour, time.Minute, false, time.Minute},
		{"it was there in between", []spec.Drift{{Item: "sysctl", Key: "net/x/y", Action: spec.ActionChange}}, time.Hour, time.Hour, false, time.Hour},
	} {
		r := Result{Health: spec.HealthOK, Drift: missing(time.Time{}), Items: []spec.ItemStatus{{Name: "sysctl", State: spec.ItemDeferred}}}
		r.Age(tc.last, begun.Add(tc.after), tc.up)
		if got := r.Health == spec.HealthDegraded && r.Items[0].State == spec.ItemDegraded && strings.Contains(r.Items[0].Error, `"net.x.y": there is no such key; for `); got != tc.degraded {
			t.Errorf("%s: degraded %v: %+v", tc.name, got, r)
		}
		if !r.Drift[0].Since.Equal(begun.Add(tc.since)) {
			t.Errorf("%s: since %v, want %v", tc.name, r.Drift[0].Since, begun.Add(tc.since))
		}
	}
	r := Result{Health: spec.HealthOK, Drift: []spec.Drift{{Item: "exec", Key: "bg", Action: spec.ActionDefer, Since: begun}}}
	r.Age(r.Drift, begun.Add(time.Hour), 2*time.Hour)
	if r.Health != spec.HealthOK {
		t.Error("a script that runs degrades the node")
	}
}
