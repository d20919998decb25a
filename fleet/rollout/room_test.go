// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec"
)

// budgeted is a rollout with a budget of each rack of ten and of all, which moves some nodes.
func budgeted(name string, nodes, overall int, moves ...string) State {
	b := &spec.RolloutBudget{Per: "rack", Each: 3, Overall: overall, Nodes: map[string]string{}}
	for i := range nodes {
		b.Nodes[fmt.Sprint("n", i)] = fmt.Sprint("r", i/10)
	}
	return State{Name: name, Phase: spec.RolloutRunning, Rule: spec.RolloutRule{Silence: 600}, Budget: b, Waves: []WaveState{{Name: "1", Moving: moves}}}
}

// told is a node as it reported at a time.
func told(i int, at time.Time, overlay, health string) *view.Node {
	return &view.Node{Name: fmt.Sprint("n", i), Received: at, Published: &spec.Published{Overlay: "new"},
		Report: &view.Brief{Interval: 5 * time.Minute, Overlay: overlay, Axes: spec.Axes{Health: spec.Axis{State: health}}}}
}

// TestRoomIsWhatACountSays: whatever it was told, and in whatever order, a room says what one says
// that was told all of it just now.
func TestRoomIsWhatACountSays(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	const nodes = 60
	states := []State{budgeted("a", nodes, 0, "n3"), budgeted("b", nodes/2, 9)}
	room, now := NewRoom(states), time.Unix(1_900_000_000, 0)
	begins, last, refused := now, map[int]*view.Node{}, 0
	for i := range 3000 {
		now = now.Add(time.Duration(r.IntN(20)) * time.Second)
		for range r.IntN(5) {
			n := told(r.IntN(nodes), now, []string{"new", "new", "new", "old"}[r.IntN(4)], []string{"ok", "ok", "ok", "degraded"}[r.IntN(4)])
			switch r.IntN(20) {
			case 0:
				n.Published = nil
			case 1:
				n.Report = nil
			}
			for id := range nodes {
				if n.Name == fmt.Sprint("n", id) {
					last[id] = n
				}
			}
			room.Tell(n)
		}
		anew := NewRoom(states)
		for _, n := range last {
			anew.Tell(n)
		}
		busy := map[string]string{fmt.Sprint("n", r.IntN(nodes)): "slot of default"}
		asks := fmt.Sprint("n", r.IntN(nodes))
		got, want := room.Full(asks, busy, begins, now), anew.Full(asks, busy, begins, now)
		if got != want {
			t.Fatalf("seed %d, request %d: %q, and counted anew %q", seed, i, got, want)
		}
		if got != "" {
			refused++
		}
	}
	if refused == 0 || refused == 3000 {
		t.Errorf("seed %d: %d of 3000 requests are refused", seed, refused)
	}
}

// TestRoomLooksAtWhatChanged: a request for a slot looks at the nodes that reported since the last
// one, and once in a silence at all.
func TestRoomLooksAtWhatChanged(t *testing.T) {
	const nodes, requests = 10_000, 300
	room, now := NewRoom([]State{budgeted("a", nodes, 500)}), time.Unix(1_900_000_000, 0)
	for i := range nodes {
		room.Tell(told(i, now, "new", "ok"))
	}
	next := 0
	for range requests { // one each second; each node reports each five minutes
		now = now.Add(time.Second)
		for range nodes / 300 {
			room.Tell(told(next%nodes, now, "new", "ok"))
			next++
		}
		if full := room.Full("n1", nil, time.Time{}, now); full != "" {
			t.Fatal(full)
		}
	}
	if most := nodes + next + nodes; room.looked > most {
		t.Errorf("%d requests looked at %d nodes, of %d and %d reports; to look at all each time is %d", requests, room.looked, nodes, next, requests*nodes)
	}
	now = now.Add(time.Hour) // nobody reports any more
	if full := room.Full("n1", nil, time.Time{}, now); full != "" {
		t.Errorf("one that is silent itself needs no room: %s", full)
	}
	room.Tell(told(1, now, "new", "ok"))
	if full := room.Full("n1", nil, time.Time{}, now); full == "" {
		t.Error("nine of its rack are silent, and there is room")
	}
}
