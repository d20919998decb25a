// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// clockwork is a machine whose vm.swappiness is managed by an operation of type
// realtime, in a window that is open from ten to eleven.
type clockwork struct {
	*machine
	clock  time.Time
	budget *spec.Budget
}

func newClockwork(t *testing.T) *clockwork {
	c := &clockwork{machine: newMachine(t), clock: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)}
	c.enrolled()
	c.wants(1, "10", "night")
	c.boot()
	return c
}

func (c *clockwork) wants(generation uint64, swappiness string, windows ...string) {
	c.t.Helper()
	day := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	c.Overlay(spec.Overlay{Core: layer("a"), Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: swappiness}}},
		Maintenance: &spec.Maintenance{Horizon: day.AddDate(0, 0, 2), Operations: []spec.Operation{},
			Windows:  map[string]spec.Window{"night": {Intervals: []spec.Interval{{From: day.Add(10 * time.Hour), To: day.Add(11 * time.Hour)}}}},
			Realtime: []spec.Realtime{{Name: "m/swap", Windows: windows, Keys: []spec.ItemKey{{Item: "sysctl", Key: "vm/swappiness"}}, Budget: c.budget}}}}, sign.Predicate{Generation: generation})
	c.confirm(fixture.Now())
}

// at opens the node at an hour and does one thing.
func (c *clockwork) at(hour int, act func(*Node) (*spec.Status, error)) *spec.Status {
	c.t.Helper()
	c.clock = time.Date(2026, 11, 21, hour, 0, 0, 0, time.UTC)
	n, err := Open(c.t.Context(), traced(session.Options{Root: c.root, Kernel: &c.kernel, Say: c.t.Logf, Clock: func() time.Time { return c.clock }}), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer n.Close() // the test is over
	st, err := act(n)
	if err != nil {
		c.t.Fatal(err)
	}
	return st
}

func (c *clockwork) looks(n *Node) (*spec.Status, error) { return n.cycle.Apply(c.t.Context()) }
func (c *clockwork) asks(n *Node) (*spec.Status, error)  { return n.cycle.Sync(c.t.Context()) }

// tampers is somebody else.
func (c *clockwork) tampers(value string) {
	c.t.Helper()
	if err := os.WriteFile(c.root+"/proc/sys/vm/swappiness", []byte(value+"\n"), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func (c *clockwork) is(what, value, action string, state spec.OperationState, st *spec.Status) {
	c.t.Helper()
	if got := c.swappiness(""); got != value {
		c.t.Errorf("%s: swappiness is %s, want %s", what, got, value)
	}
	if action == "" && len(st.Drift) != 0 || action != "" && (len(st.Drift) != 1 || st.Drift[0].Action != action) {
		c.t.Errorf("%s: %+v, want %q", what, st.Drift, action)
	}
	if len(st.Operations) != 1 || st.Operations[0].Type != "realtime" || st.Operations[0].State != state {
		c.t.Errorf("%s: %+v, want %s", what, st.Operations, state)
	}
	if st.Health != spec.HealthOK {
		c.t.Errorf("%s: health is %s: %s", what, st.Health, st.HealthDetail)
	}
}

// TestRealtimeHoldsInItsWindow: what a boot brings is set at once. After that a window
// is open when something is set, or set again; outside it waits or is reported.
func TestRealtimeHoldsInItsWindow(t *testing.T) {
	c := newClockwork(t)
	c.is("a boot", "10", "", spec.OperationWaiting, c.at(9, c.looks))

	c.tampers("77")
	st := c.at(9, c.looks)
	c.is("changed outside", "77", spec.ActionReport, spec.OperationWaiting, st)
	if d := st.Operations[0].Detail; !strings.Contains(d, "window night opens at 2026-11-21 10:00") {
		t.Errorf("it says %q", d)
	}
	c.is("its window opens", "10", "", spec.OperationHolding, c.at(10, c.looks))
	c.tampers("77")
	c.is("changed inside", "10", "", spec.OperationHolding, c.at(10, c.looks))

	c.wants(2, "20", "night")
	st = c.at(12, c.asks)
	c.is("published outside", "10", spec.ActionDefer, spec.OperationWaiting, st)
	if st.Generation != 2 || !strings.Contains(st.Drift[0].Reason, "no window opens before") {
		t.Errorf("generation %d, %q", st.Generation, st.Drift[0].Reason)
	}
	c.is("and looked at", "10", spec.ActionDefer, spec.OperationWaiting, c.at(12, c.looks))
	c.is("then inside", "20", "", spec.OperationHolding, c.at(10, c.looks))
	c.is("and closed again", "20", "", spec.OperationWaiting, c.at(12, c.looks))

	c.wants(3, "30") // without a window
	c.is("at any time", "30", "", spec.OperationHolding, c.at(12, c.asks))
	c.tampers("77")
	c.is("changed at any time", "30", "", spec.OperationHolding, c.at(12, c.looks))
}

// TestRealtimeIsGivenUp: an operation of type realtime has a budget of its own; what is
// only reported costs none of it.
func TestRealtimeIsGivenUp(t *testing.T) {
	c := newClockwork(t)
	c.budget = &spec.Budget{Corrections: 2, Per: 3600}
	c.wants(2, "10", "night")
	c.at(9, c.asks)
	for range 3 {
		c.tampers("77")
		c.at(9, c.looks)
	}
	for n := range 2 {
		c.tampers("77")
		c.is("in its window", "10", "", spec.OperationHolding, c.at(10, c.looks))
		if n == 1 {
			c.tampers("77")
		}
	}
	st := c.at(10, c.looks)
	if c.swappiness("") != "77" || st.Health != spec.HealthQuarantined || len(st.Drift) != 1 || st.Drift[0].Count != 2 {
		t.Errorf("after its budget: %s, %+v", st.Health, st.Drift)
	}
}

// TestRealtimeIsPaused: a pause detects and changes nothing, in the window too.
func TestRealtimeIsPaused(t *testing.T) {
	c := newClockwork(t)
	c.at(10, c.looks)
	c.at(10, func(n *Node) (*spec.Status, error) { return nil, n.Pause("by hand", 0) })
	c.tampers("77")
	if st := c.at(10, c.looks); c.swappiness("") != "77" || len(st.Drift) != 1 || st.Drift[0].From != "77" {
		t.Errorf("swappiness %s, %+v", c.swappiness(""), st.Drift)
	}
}
