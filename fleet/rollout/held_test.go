// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/prune"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// hold does one of the verbs of holds to a node.
func (f *fleet) hold(do func(*publish.Publisher, hold.Order) error, name string) {
	f.t.Helper()
	f.p.Now = f.now
	must(f.t, do(&f.p, hold.Order{Nodes: []string{name}, By: publish.By{Author: "eve", Reason: "a look"}}))
}

func (f *fleet) verbs() map[string]func(*publish.Publisher, hold.Order) error {
	ctx := f.t.Context()
	return map[string]func(*publish.Publisher, hold.Order) error{
		"pause":    func(p *publish.Publisher, h hold.Order) error { _, err := hold.Pause(ctx, p, h); return err },
		"resume":   func(p *publish.Publisher, h hold.Order) error { _, err := hold.Resume(ctx, p, h); return err },
		"freeze":   func(p *publish.Publisher, h hold.Order) error { _, err := hold.Freeze(ctx, p, h); return err },
		"forward":  func(p *publish.Publisher, h hold.Order) error { _, err := hold.Forward(ctx, p, h); return err },
		"rollback": func(p *publish.Publisher, h hold.Order) error { _, err := hold.Rollback(ctx, p, h, ""); return err },
	}
}

// A node that an operator takes out of a wave that runs is left out, named with why, and
// halts nothing; it is not waited for either.
func TestHeldWhileItsWaveRuns(t *testing.T) {
	for _, verb := range []string{"pause", "freeze", "rollback"} {
		t.Run(verb, func(t *testing.T) {
			f := newFleet(t, layout(t), 12, threeWaves)
			f.nodes["n00001"].sick = "2"
			_, err := f.start("2")
			must(t, err)
			f.reach(2)
			f.tick(time.Minute)
			f.hold(f.verbs()[verb], "n00001")
			f.leaves("1 of 12 nodes left out: n00001 (held: " + verb)
			if r := f.row(); r.Waves[1].LeftOut["n00001"] != "held: "+verb+", a look" || len(r.Waves[1].Failed) > 0 {
				t.Errorf("row: %+v", r)
			}
		})
	}
}

// A node that an operator gave something else, and that nothing holds any more, is left
// out of its wave, too: it was never to report what the wave brings.
func TestGivenSomethingElseWhileItsWaveRuns(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	_, err := f.start("2")
	must(t, err)
	f.reach(2)
	f.hold(f.verbs()["rollback"], "n00001")
	f.hold(f.verbs()["forward"], "n00001")
	f.leaves("1 of 12 nodes left out: n00001 (it got")
	if got := f.row().Waves[1].LeftOut["n00001"]; got != "it got something else since" {
		t.Errorf("it is left out because %q", got)
	}
}

// Those that do not go back when a wave does are named; an undo takes them back once
// nothing holds them any more, and a third one finds nothing to do.
func TestWhoStays(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	f.nodes["n00001"].sick = "2"
	_, err := f.start("2")
	must(t, err)
	f.reach(2)
	f.tick(time.Minute)
	f.hold(f.verbs()["freeze"], "n00002")
	f.hold(f.verbs()["pause"], "n00003")
	var said []string
	d := f.driver()
	d.Say = func(format string, args ...any) { said = append(said, strings.TrimSpace(format)) }
	for range 100 {
		moved, _, err := d.Step(t.Context())
		if errors.Is(err, ErrHalted) {
			break
		}
		must(t, err)
		if !moved {
			f.tick(time.Minute)
		}
	}
	f.tick(time.Minute)
	f.want(map[string]int{"1": 9, "2": 3})
	for name, want := range map[string]string{"n00002": "held: freeze, a look", "n00003": "held: pause, a look", "n00001": ""} {
		if got := f.row().Waves[1].Stayed[name]; got != want {
			t.Errorf("node %s stayed because %q, want %q", name, got, want)
		}
	}
	if !strings.Contains(strings.Join(said, "\n"), "do not go back") {
		t.Errorf("it said %q", said)
	}
	f.do(Undo)
	f.tick(time.Minute)
	f.want(map[string]int{"1": 10, "2": 2})
	f.hold(f.verbs()["forward"], "n00002")
	f.hold(f.verbs()["resume"], "n00003")
	f.do(Undo)
	f.tick(time.Minute)
	f.want(map[string]int{"1": 12})
	if err := f.try(Undo); err == nil || !strings.Contains(err.Error(), "it is undone") {
		t.Errorf("a third undo: %v", err)
	}
}

// A start says which nodes are held, and signs nothing that its waves would be refused.
func TestWhatAStartSays(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	f.hold(f.verbs()["freeze"], "n00005")
	f.tick(time.Minute)
	o := f.order("2")
	f.p.Now = f.now
	plan, held, err := Preview(t.Context(), &f.p, f.policy(), o)
	must(t, err)
	if len(held) != 1 || held["n00005"] != "held: freeze, a look" || len(plan.Waves) != 3 {
		t.Errorf("%v are held, waves %+v", held, plan.Waves)
	}
	doc, err := o.Nodes[7].Doc()
	must(t, err)
	policy := f.policy()
	f.p.Trust = &policy
	_, err = f.p.Refresh(t.Context(), publish.Lists{Unseen: true, Reject: []string{oci.Digest(doc)}})
	must(t, err)
	for verb, err := range map[string]error{
		"preview": func() error { _, _, err := Preview(t.Context(), &f.p, f.policy(), o); return err }(),
		"start":   func() error { _, err := f.start("2"); return err }(),
	} {
		if refusal.Of(err) != refusal.Rejected || !strings.Contains(err.Error(), "node n00007") {
			t.Errorf("%s of what is on the reject list: %v", verb, err)
		}
	}
	if r := f.row(); r.Phase != "" {
		t.Errorf("it started: %+v", r)
	}
}

// After a halt that rejected what the rollout brought, nothing begins again before that is
// allowed again.
func TestResumeOfWhatIsRejected(t *testing.T) {
	f := newFleet(t, layout(t), 12, strings.Replace(threeWaves, "}]", "}], undo: all", 1))
	o := f.order("2")
	f.p.Now = f.now
	layer := oci.Digest([]byte("layer"))
	_, err := f.p.Advance(t.Context(), f.policy(), "roll", publish.By{}, func(_ context.Context, fleet *published.Fleet) (*publish.Step, error) {
		rows, err := fleet.Nodes(t.Context())
		must(t, err)
		plan, err := NewPlan(fleet, rows, o)
		must(t, err)
		plan.Layers = []string{layer}
		return &publish.Step{Plan: plan, Row: spec.Rollout{Phase: spec.RolloutHalted}, Reject: plan.Layers}, nil
	})
	must(t, err)
	if err := f.try(Resume); refusal.Of(err) != refusal.Rejected {
		t.Errorf("a resume: %v", err)
	}
	policy := f.policy()
	f.p.Trust = &policy
	_, err = f.p.Refresh(t.Context(), publish.Lists{Allow: []string{layer}})
	must(t, err)
	f.do(Resume)
}

// An undo goes back to what a removed generation had as far as the rows remember it, and
// else says what is missing, and for whom, before anything changes.
func TestUndoAfterPrune(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	_, err := f.start("2")
	must(t, err)
	if err := f.run(); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
	prune := func() {
		f.p.Now = f.now
		policy := f.policy()
		f.p.Trust = &policy
		_, err := prune.Run(t.Context(), &f.p.Reader, f.p.Alone, prune.Keep{Versions: 1, Generations: 1}, false)
		must(t, err)
	}
	prune()
	f.do(Undo)
	f.tick(time.Minute)
	f.want(map[string]int{"1": 12})

	_, err = f.start("3")
	must(t, err)
	if err := f.run(); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
	// What n00004 had before is now another generation's: nobody knows what it had then.
	f.hold(f.verbs()["rollback"], "n00004")
	f.hold(f.verbs()["forward"], "n00004")
	f.publish()
	prune()
	before := f.row()
	if err := f.try(Undo); err == nil || !strings.Contains(err.Error(), "which was removed (node n00004)") {
		t.Fatalf("an undo: %v", err)
	}
	if r := f.row(); r.Phase != before.Phase {
		t.Errorf("it is %s", r.Phase)
	}
	f.hold(f.verbs()["freeze"], "n00004")
	f.tick(time.Minute)
	f.do(Undo)
	f.tick(time.Minute)
	f.want(map[string]int{"1": 11, "3": 1})
}
