// SPDX-License-Identifier: Apache-2.0

package track_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
)

// rejected is on the honest publisher's reject list.
var rejected = "sha256:" + strings.Repeat("ab", 32)

// harm plays a row and returns what became of the node, "" when it followed the
// honest publisher in the end.
func harm(t *testing.T, row attack.Clock, rules *trust.Rules) string {
	t.Helper()
	f := newFleet(t)
	rtc := row.HardwareClock(t)
	f.Build, f.RTC, f.Rules = attack.Truth.AddDate(0, -1, 0), func() time.Time { return rtc }, rules
	before := attack.Truth.AddDate(0, 0, -2)
	f.overlay(said{issued: before, generation: 7}, "7")
	f.fleetCurrent(said{issued: before, generation: 1})
	if row.State != "" {
		var s state.State
		f.must(json.Unmarshal([]byte(row.State), &s))
		f.must(f.Folder.Save(&s))
	} else {
		f.sync()
		f.promote()
	}
	meet := func(s *attack.Said, publish func(said)) {
		if s != nil {
			w := said{issued: s.Issued, epoch: s.Epoch, generation: s.Generation, permitted: s.Permitted}
			if w.issued.IsZero() {
				w.issued = attack.Truth.AddDate(0, 0, -1)
			}
			publish(w)
		}
	}
	meet(row.Fleet, func(w said) { f.fleetCurrent(w) })
	meet(row.Overlay, func(w said) { f.overlay(w, "evil") })
	if row.Fleet != nil || row.Overlay != nil {
		_, _ = f.Sync(t.Context()) // accepted or refused: what counts is what stays
	}

	honest := said{issued: attack.Truth, generation: 9}
	if row.Raise {
		honest.epoch, honest.permitted = 1, true
	}
	f.overlay(honest, "9")
	f.fleetCurrent(said{issued: honest.issued, epoch: honest.epoch, generation: 1, permitted: honest.permitted}, rejected)
	found, err := f.Sync(t.Context())
	if err != nil {
		return err.Error()
	}
	if sync, why := found.Axis(); sync != spec.SyncCurrent {
		return fmt.Sprintf("%s: %s", sync, why)
	}
	s := f.state()
	if !slices.Contains(s.Fleet.Reject, rejected) {
		return "the honest fleet:current was not used"
	}
	clock := track.Clock(s, f.Build)
	clock.RTC = rtc
	now, _ := rules.On(clock).Ticking()
	if late := now().Sub(attack.Truth); late > 3*24*time.Hour || now().Before(f.Build) {
		return fmt.Sprintf("TLS runs at %s", now())
	}
	return ""
}

func TestWrongDatesEndNothing(t *testing.T) {
	attacks := 0
	for _, row := range attack.Clocks(t) {
		if len(row.Checks) > 0 {
			attacks++
		}
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			if got := harm(t, row, trust.All()); got != "" {
				t.Error(got)
			}
		})
	}
	if attacks < 15 {
		t.Errorf("%d attacks, at least 15 belong here", attacks)
	}
}

// TestNoClockCheckIsVacuous leaves out what a row names, and wants harm.
func TestNoClockCheckIsVacuous(t *testing.T) {
	named := map[string]bool{}
	for _, row := range attack.Clocks(t) {
		if len(row.Checks) == 0 {
			continue
		}
		rules := trust.All()
		for _, name := range row.Checks {
			if !slices.Contains(rules.Names(), name) {
				t.Errorf("%s: no check is named %q", row.Name, name)
			}
			rules, named[name] = rules.Without(name), true
		}
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			if harm(t, row, rules) == "" {
				t.Errorf("it does no harm without %q", row.Checks)
			}
		})
	}
	for _, name := range trust.All().Names() {
		if (strings.HasPrefix(name, "date: ") || strings.HasPrefix(name, "hardware clock: ")) && !named[name] {
			t.Errorf("no row names the check %q", name)
		}
	}
}
