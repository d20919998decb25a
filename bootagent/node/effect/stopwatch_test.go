// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"testing"
	"testing/synctest"
	"time"
)

// What scripts take does not count, up to their timeouts; what they could have taken does not
// either.
func TestScriptsAreNotCounted(t *testing.T) {
	for _, c := range []struct {
		name  string
		took  []time.Duration // by scripts that may take 30 minutes each, one after another
		after time.Duration   // when it happens
	}{
		{"none", nil, 5 * time.Minute},
		{"one that is over at once", []time.Duration{0}, 5 * time.Minute},
		{"one that has ended", []time.Duration{10 * time.Minute}, 15 * time.Minute},
		{"two that have ended", []time.Duration{10 * time.Minute, 3 * time.Minute}, 18 * time.Minute},
		{"one that hangs", []time.Duration{10 * time.Hour}, 35 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w stopwatch
				began, rang := time.Now(), time.Duration(0)
				stop := w.after(5*time.Minute, func() { rang = time.Since(began) })
				for _, took := range c.took {
					ended := w.script(30 * time.Minute)
					time.Sleep(took)
					ended()
				}
				time.Sleep(24 * time.Hour)
				if rang != c.after || stop() {
					t.Errorf("it happened after %s, want %s", rang, c.after)
				}
			})
		})
	}
}

// What was stopped does not happen when a script ends.
func TestWhatWasStoppedStaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w stopwatch
		stop := w.after(time.Minute, func() { t.Error("it happened") })
		ended := w.script(time.Hour)
		if !stop() {
			t.Error("it had happened")
		}
		ended()
		time.Sleep(24 * time.Hour)
	})
}
