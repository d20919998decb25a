// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// A hold whose end has come holds no node any more, although the index has it until the
// next publish: neither in a condition nor in a list.
func TestAHoldThatIsOver(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	for kind, want := range map[string]Condition{spec.HoldFreeze: Held, spec.HoldPause: Paused} {
		n := &Node{Name: "n1", Received: now, Published: &spec.Published{Overlay: "o", Holds: []spec.Hold{{Kind: kind, Reason: "a look", Until: now.Unix() + 1}}},
			Report: &Brief{Overlay: "o", Axes: spec.Axes{Health: spec.Axis{State: string(spec.HealthOK)}}}}
		if c, why := n.Condition(now); c != want || why != kind+": a look" || !slices.Equal(n.Line(now).Holds, []string{kind}) {
			t.Errorf("%s: it is %s, %s; %v", kind, c, why, n.Line(now).Holds)
		}
		later := now.Add(time.Second)
		if c, why := n.Condition(later); c != Fine || n.Line(later).Holds != nil {
			t.Errorf("%s that is over: it is %s, %s; %v", kind, c, why, n.Line(later).Holds)
		}
	}
}

// A node is as published once the change has proved itself: until then it may go back by itself.
func TestAChangeThatIsJudgedIsNotFine(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	for _, row := range []struct {
		activity spec.Activity
		overlay  string
		want     Condition
	}{
		{spec.ActivitySoaking, "o", Soaking}, {spec.ActivityWaiting("confirm"), "o", Soaking}, {spec.ActivitySoaking, "before", Behind},
		{spec.ActivityWaiting("window"), "o", Fine}, {spec.ActivityIdle, "o", Fine},
	} {
		n := &Node{Name: "n1", Received: now, Published: &spec.Published{Overlay: "o"}, Report: &Brief{Overlay: row.overlay, Axes: spec.Axes{
			Health: spec.Axis{State: string(spec.HealthOK)}, Activity: spec.Axis{State: string(row.activity), Detail: "generation 7 is judged"}}}}
		c, why := n.Condition(now)
		if c != row.want || c == Soaking && why != "generation 7 is judged" || KindOf(c).Trouble || c.rank() < 0 {
			t.Errorf("%s of %s: it is %s, %s; want %s", row.activity, row.overlay, c, why, row.want)
		}
	}
}

// The overview's reasons are the worst first, and of one kind those of most nodes.
func TestTheWorstReasonIsFirst(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	var nodes []Judged
	for _, n := range []struct {
		health, why string
		nodes       int
	}{{"degraded", "many", 3}, {"degraded", "few", 1}, {"broken", "one", 1}, {"degraded", "some", 2}} {
		for range n.nodes {
			nodes = append(nodes, Judge(&Node{Name: "n", Received: now, Published: &spec.Published{},
				Report: &Brief{Axes: spec.Axes{Health: spec.Axis{State: n.health, Detail: n.why}}}}, now))
		}
	}
	var got []string
	for _, r := range Summarise(nodes).Reasons {
		got = append(got, r.Why)
	}
	if want := []string{"one", "many", "some", "few"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A row says when an operation ended last, and nothing of those that have not.
func TestLineEnded(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	r := &spec.Report{Operations: []spec.OperationStatus{
		{Name: "m/a", State: spec.OperationDone, Since: at}, {Name: "m/b", State: spec.OperationFailed, Since: at.Add(time.Hour)},
		{Name: "m/c", State: spec.OperationRunning, Since: at.Add(2 * time.Hour)}}}
	n := &Node{Name: "n1", Report: NewBrief(r)}
	if got := n.Line(at).Ended; !got.Equal(at.Add(time.Hour)) {
		t.Errorf("ended %s", got)
	}
}

// Where generations are equal the reason names what differs.
func TestBehindSaysWhatDiffers(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	hex := func(c string) string { return "sha256:" + strings.Repeat(c, 64) }
	for _, c := range []struct {
		report    Brief
		published spec.Published
		want      string
	}{
		{Brief{Generation: 6, Overlay: "a"}, spec.Published{Generation: 7, Overlay: "b"}, "it runs generation 6, 7 is published"},
		{Brief{Generation: 7, Overlay: "a", Layer: hex("1")}, spec.Published{Generation: 7, Overlay: "b", Layer: hex("2")}, "it runs generation 7 on layer 111111111111, and on 222222222222 it is published"},
		{Brief{Generation: 7, Overlay: "a"}, spec.Published{Generation: 7, Overlay: "b"}, "it runs another overlay of generation 7 than is published"},
		{Brief{Generation: 7, Overlay: "a", Staged: "a"}, spec.Published{Generation: 7, Overlay: "a"}, "it runs generation 7, whose layer waits"},
	} {
		c.report.Axes = spec.Axes{Health: spec.Axis{State: string(spec.HealthOK)}}
		n := &Node{Name: "n", Received: now, Published: &c.published, Report: &c.report}
		if is, why := n.Condition(now); is != Behind || why != c.want {
			t.Errorf("%s, %s; want %s", is, why, c.want)
		}
	}
}
