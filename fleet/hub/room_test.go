// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/spec"
)

// A slot is refused where the budget of a rollout is used up without it, by what the index says
// when the node asks; meanwhile a driver sees the node among those that hold one.
func TestASlotWithinABudget(t *testing.T) {
	r := newRig(t, "n1", "n2", "n3")
	for _, n := range []string{"1", "2", "3"} {
		r.must(r.report("k"+n, "n"+n, 1, nil))
	}
	state := rollout.State{Name: "roll", Phase: spec.RolloutRunning, Rule: spec.RolloutRule{Silence: 3600},
		Budget: &spec.RolloutBudget{Per: "rack", Each: 1, Nodes: map[string]string{"n1": "r1", "n2": "r1", "n3": "r2"}},
		Waves:  []rollout.WaveState{{Name: "1", Moving: []string{"n1"}}}}
	seen, behind := 0, ""
	index := r.hub.o.Index
	r.hub.o.Index = func(ctx context.Context, _ string) (Published, error) {
		p, err := index(ctx, "")
		p.Root += "with a rollout, behind: " + behind
		p.Rollouts = []rollout.State{state}
		for _, row := range p.Rows { // they run what is published
			for _, n := range r.hub.nodes {
				if n.view.Report.Overlay = row.Overlay; n.view.Name == behind {
					n.view.Report.Overlay = "something else"
				}
			}
		}
		for _, g := range r.hub.Slots() {
			seen += len(g.Held)
		}
		return p, err
	}
	var full *SlotError
	if err := r.hub.TakeSlot(t.Context(), "default", "n2", r.proof("k2")); !errors.As(err, &full) || full.Kind != "budget" ||
		!strings.Contains(full.Why, "rollout roll is under way; rack r1: 1 unavailable, 1 may be: n1 (rollout roll)") {
		t.Errorf("n2 gets a slot: %v", err)
	}
	if seen != 1 {
		t.Errorf("a driver saw %d slots while it was decided", seen)
	}
	if held := r.hub.Slots()[0].Held; len(held) != 0 {
		t.Errorf("held: %+v", held)
	}
	r.later(time.Second)
	behind = "n2"
	if err := r.hub.TakeSlot(t.Context(), "default", "n1", r.proof("k1")); !errors.As(err, &full) || full.Kind != "budget" {
		t.Errorf("n1, which moves beside one that is unavailable, gets a slot: %v", err)
	}
	behind = ""
	r.later(time.Second)
	r.must(r.hub.TakeSlot(t.Context(), "default", "n1", r.proof("k1"))) // it counts once
	r.later(time.Second)
	r.must(r.hub.FreeSlot(t.Context(), "default", "n1", r.proof("k1")))
	r.later(time.Second)
	r.must(r.hub.TakeSlot(t.Context(), "default", "n3", r.proof("k3"))) // of another rack
	r.must(r.hub.FreeSlot(t.Context(), "default", "n3", r.proof("k3")))
	r.hub.o.Index = func(context.Context, string) (Published, error) { return Published{}, errors.New("no route") }
	if err := r.hub.TakeSlot(t.Context(), "default", "n3", r.proof("k3")); !errors.As(err, &full) || full.Kind != "budget" {
		t.Errorf("a slot where what is published cannot be read: %v", err)
	}
}

// Behind a time without the service it is not known who is well: a slot takes room then, though the
// node counts as silent.
func TestASlotBehindAServiceThatWasAway(t *testing.T) {
	r := newRig(t, "n1", "n2")
	r.hears = true
	r.must(r.report("k1", "n1", 1, nil))
	r.must(r.report("k2", "n2", 1, nil))
	r.later(2 * time.Hour)
	r.restart()
	index := r.hub.o.Index
	r.hub.o.Index = func(ctx context.Context, _ string) (Published, error) {
		p, err := index(ctx, "")
		p.Root += "with a rollout"
		p.Rollouts = []rollout.State{{Name: "roll", Phase: spec.RolloutRunning, Rule: spec.RolloutRule{Silence: 3600},
			Budget: &spec.RolloutBudget{Per: "rack", Each: 1, Nodes: map[string]string{"n1": "r1", "n2": "r1"}}}}
		return p, err
	}
	var full *SlotError
	if err := r.hub.TakeSlot(t.Context(), "default", "n2", r.proof("k2")); !errors.As(err, &full) || full.Kind != "budget" {
		t.Errorf("n2 gets a slot: %v", err)
	}
	r.must(r.report("k1", "n1", 2, nil))
	r.later(time.Second)
	r.must(r.hub.TakeSlot(t.Context(), "default", "n2", r.proof("k2")))
}
