// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"testing"

	"github.com/caisson-os/caisson/spec"
)

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		name   string
		status spec.Status
		want   string // "" while nothing is decided, else passed or why not
	}{
		{"before the first run", spec.Status{}, ""},
		{"gates are looked at", spec.Status{Generation: 1, Health: spec.HealthOK, Activity: spec.ActivitySoaking}, ""},
		{"well", spec.Status{Generation: 1, Health: spec.HealthOK, Activity: spec.ActivityIdle}, "passed"},
		{"degraded", spec.Status{Generation: 1, Health: spec.HealthDegraded, HealthDetail: "sysctl a"}, "health is degraded: sysctl a"},
		{"broken", spec.Status{Generation: 1, Health: spec.HealthBroken}, "health is broken"},
		{"a gate failed", spec.Status{Generation: 1, Health: spec.HealthBroken, Rejected: &spec.Rejected{Reason: "ready: no file"}}, "ready: no file"},
		{"undone", spec.Status{Generation: 1, Health: spec.HealthOK, Trial: &spec.Trial{Undone: "cut off"}}, "cut off"},
	} {
		got := ""
		if v := judge(&test.status, 1); v != nil {
			if got = v.Reason; v.Passed {
				got = "passed"
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestMemoryFor(t *testing.T) {
	for layer, want := range map[int64]int{0: 1024, 100 << 20: 1280, 256 << 20: 1280, 1 << 30: 2048} {
		if got := memoryFor(layer); got != want {
			t.Errorf("a layer of %d bytes: %d MiB, want %d", layer, got, want)
		}
	}
}
