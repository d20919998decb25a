// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

func (m *machine) blackBox() (noted []spec.Event, names []string) {
	m.t.Helper()
	noted, err := events.BoxAt(m.root + paths.State + "/" + events.BoxName).Events()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range noted {
		names = append(names, e.Event)
	}
	return noted, names
}

// A change that is taken back: which item, which key of it, what the kernel said, and what
// the node did. What is tried and fails again and again is noted once.
func TestATakenBackChangeIsInTheBlackBox(t *testing.T) {
	m := newMachine(t)
	if err := os.MkdirAll(m.root+"/proc/sys/vm/ghost", 0o755); err != nil {
		t.Fatal(err)
	}
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	m.apply()
	m.publishItems(2, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}, {Key: "vm/ghost", Value: "1"}}})
	for range 2 {
		n := m.open()
		if _, err := n.cycle.Sync(t.Context()); err == nil {
			t.Error("a directory was written to")
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	events, names := m.blackBox()
	if !slices.Equal(names, []string{"up", "taken-back"}) || events[0].Why != "health ok" {
		t.Fatalf("%q, %+v", names, events)
	}
	n := m.open()
	n.session.Note(state.Generation{Generation: 3}, fmt.Errorf("write /etc/x: %w", syscall.ENOSPC), spec.Event{Event: spec.EventTakenBack})
	if events, _ := m.blackBox(); events[2].Errno != "ENOSPC" {
		t.Errorf("%+v", events[2])
	}
	if e := events[1]; e.Generation != 2 || e.Layer != layerNamed("a") || e.Item != "sysctl" || e.Key != "vm.ghost" || !strings.Contains(e.Why, "ghost") || e.Did == "" || e.Boot == "" {
		t.Errorf("%+v", e)
	}
}

// A gate that failed is noted before anything is undone, with its check.
func TestAFailedGateIsInTheBlackBox(t *testing.T) {
	m := runningMachine(t)
	m.publishGated(2, layer("a"), "20", 0)
	m.sync()
	m.judge(5)
	events, names := m.blackBox()
	if !slices.Equal(names, []string{"up", "gate-failed"}) {
		t.Fatalf("%q", names)
	}
	if e := events[1]; e.Generation != 2 || !strings.HasPrefix(e.Why, "ready: ") || !strings.Contains(e.Did, "generation 1 (live)") {
		t.Errorf("%+v", e)
	}
}

// What the registry has and the node refuses is noted with its code.
func TestARefusalIsInTheBlackBox(t *testing.T) {
	m := runningMachine(t)
	m.publish(3, layerNamed("a"), "20")
	m.sync()
	m.publish(2, layerNamed("a"), "30")
	for range 2 {
		n := m.open()
		if _, err := n.cycle.Sync(t.Context()); refusal.Of(err) == "" {
			t.Errorf("error %v", err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	events, names := m.blackBox()
	if !slices.Equal(names, []string{"up", "refused"}) || events[1].Code == "" || events[1].Why == "" {
		t.Errorf("%+v", events)
	}
}
