// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// TestEqualRulesOnce: rules that say the same are gathered once a day, and not at the end of two
// years.
func TestEqualRulesOnce(t *testing.T) {
	rules := make([]Rule, 2000)
	for i := range rules {
		rules[i] = Rule{Days: Weekly{time.Saturday}, At: 22 * time.Hour}
	}
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	span := spec.Interval{From: from, To: from.AddDate(2, 0, 0)}
	got, want := Instants(rules, time.UTC, span), Instants(rules[:1], time.UTC, span)
	if !slices.Equal(got, want) || len(want) < 104 {
		t.Errorf("%d times, want %d", len(got), len(want))
	}
	if cap(got) > 10_000 {
		t.Errorf("%d times were gathered", cap(got))
	}
}
