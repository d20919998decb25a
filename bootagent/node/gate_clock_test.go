// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// lookIn looks at the gates under a clock that is set to the year 2000, and on by some time,
// while the kernel's own goes on: the clock of a bubble is one that jumps.
func (m *machine) lookIn(later time.Duration) {
	m.t.Helper()
	o := traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: func(string, ...any) {}, Reboot: func(context.Context) error { return nil }})
	var err error
	synctest.Test(m.t, func(*testing.T) {
		time.Sleep(later)
		_, _, err = Judge(context.Background(), o, nil)
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// later acts under a clock that is on by some time.
func (m *machine) later(by time.Duration, act func() *spec.Status) (st *spec.Status) {
	m.t.Helper()
	then := time.Now().Add(by)
	synctest.Test(m.t, func(*testing.T) {
		time.Sleep(time.Until(then))
		st = act()
	})
	return st
}

// TestAClockThatJumpsWhileChecksSoak: a clock that is set, by fifty years and either way,
// passes no check before its time, keeps none from passing, and fails none.
func TestAClockThatJumpsWhileChecksSoak(t *testing.T) {
	for name, soak := range map[string]int64{"an hour": 3600, "a second": 1} {
		t.Run(name, func(t *testing.T) {
			m := runningMachine(t)
			m.Overlay(spec.Overlay{Core: layer("a"), Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}}},
				Gates: &spec.Gates{Checks: []spec.HealthCheck{{Name: "ready", File: "/ready20", Timeout: 1, Interval: 1, Soak: soak}}}}, sign.Predicate{Generation: 2})
			m.confirm(time.Now())
			m.ready("20")
			m.sync()
			for n := range 3 {
				m.lookIn(time.Duration(n%2) * 50 * 365 * 24 * time.Hour)
				m.kernel.Sleep(t.Context(), 1100*time.Millisecond)
			}
			switch s := m.state(); {
			case s.Staged != nil && s.Staged.Failed != "":
				t.Errorf("it failed: %s", s.Staged.Failed)
			case (s.Current.Generation == 2) != (soak == 1):
				t.Errorf("generation %d is current after three seconds, with a soak of %d", s.Current.Generation, soak)
			}
			if st := m.apply(); st.Generation != 2 {
				t.Errorf("generation %d runs", st.Generation)
			}
		})
	}
}
