// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/spec"
)

var november = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func TestWhatStandsBesideWhat(t *testing.T) {
	kinds := func(holds []spec.Hold) (out []string) {
		for _, h := range holds {
			out = append(out, h.Kind)
		}
		return out
	}
	var holds []spec.Hold
	for _, step := range []struct {
		kind string
		want []string
	}{
		{spec.HoldPin, []string{"pin"}},
		{spec.HoldPause, []string{"pause", "pin"}},
		{spec.HoldFreeze, []string{"freeze", "pause"}},
		{spec.HoldPause, []string{"freeze", "pause"}},
		{spec.HoldRollback, []string{"freeze", "pause", "rollback"}}, // the freeze outlasts the rollback
	} {
		holds, _ = putHold(holds, spec.Hold{Kind: step.kind})
		if got := kinds(holds); !cmp.Equal(got, step.want) {
			t.Errorf("after %s: %q, want %q", step.kind, got, step.want)
		}
	}
	stay, ended := endHolds(holds, true)
	if !cmp.Equal(kinds(stay), []string{"freeze", "rollback"}) || !cmp.Equal(kinds(ended), []string{"pause"}) {
		t.Errorf("End(pause) = %q, %q", kinds(stay), kinds(ended))
	}
	stay, ended = endHolds(holds, false)
	if !cmp.Equal(kinds(stay), []string{"freeze", "pause"}) || !cmp.Equal(kinds(ended), []string{"rollback"}) {
		t.Errorf("End = %q, %q", kinds(stay), kinds(ended))
	}
	if stay, ended = endHolds(stay, false); !cmp.Equal(kinds(stay), []string{"pause"}) || !cmp.Equal(kinds(ended), []string{"freeze"}) {
		t.Errorf("End of what was below = %q, %q", kinds(stay), kinds(ended))
	}
}

func TestHoldsEndInTime(t *testing.T) {
	holds := []spec.Hold{{Kind: spec.HoldPin}, {Kind: spec.HoldPause, Until: november.Unix()}}
	if last, over := published.SplitHolds(holds, november.Add(-time.Second)); len(last) != 2 || len(over) != 0 {
		t.Errorf("a second before: %v, %v", last, over)
	}
	if last, over := published.SplitHolds(holds, november); len(last) != 1 || len(over) != 1 || over[0].Kind != spec.HoldPause {
		t.Errorf("at the moment: %v, %v", last, over)
	}
}

func TestParseUntil(t *testing.T) {
	for text, want := range map[string]time.Time{
		"":                          {},
		"7d":                        november.Add(7 * 24 * time.Hour),
		"12h":                       november.Add(12 * time.Hour),
		"2026-11-30":                time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC),
		"2026-11-30T18:00:00+01:00": time.Date(2026, 11, 30, 17, 0, 0, 0, time.UTC),
	} {
		if got, err := ParseUntil(text, november); err != nil || !got.Equal(want) {
			t.Errorf("ParseUntil(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"soon", "-1h", "2026-10-30", "99999d", "9999999999h", "d", "2400-01-01"} {
		if got, err := ParseUntil(text, november); err == nil {
			t.Errorf("ParseUntil(%q) = %v, want an error", text, got)
		}
	}
}

func TestHoldText(t *testing.T) {
	got := published.HoldText([]spec.Hold{{Kind: spec.HoldPin, Reason: "waits for firmware", Author: "eve", Since: november.Unix(), Until: november.Add(time.Hour).Unix()}})
	if want := "pin by eve since 2026-11-01T12:00:00Z until 2026-11-01T13:00:00Z: waits for firmware"; got != want {
		t.Errorf("HoldText = %q, want %q", got, want)
	}
}
