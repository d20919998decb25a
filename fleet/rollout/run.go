// SPDX-License-Identifier: Apache-2.0

// Package rollout moves a fleet in waves: a plan is signed once, each wave is a publish
// of its nodes, and what the nodes report decides whether the next one begins.
//
// [Start] makes a plan of a compiled site. [Run] goes on from wherever the fleet's
// index says that the rollout is: begin a wave, wait until it is well for the time of
// soaking, begin the next; or halt, and give nodes back what they had. [Next] is the
// whole decision, without a clock, a registry or a network.
//
// Every step is made while no other publisher changes the fleet, and its result is in
// the signed index. So a run may be killed anywhere and go on elsewhere, two runs do
// each step once, and a rollout that one of them halted is halted for both. Nodes obey
// signatures alone: a report, forged or true, can only hold a wave back or let the next
// signed step come earlier.
package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/caisson-os/caisson/fleet/analysis"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Driver drives one rollout.
type Driver struct {
	Publisher publish.Publisher // its Now and Clock are set at every step
	Policy    published.Policy
	By        publish.By
	Name      string
	Compile   func(context.Context, *spec.RolloutPlan) ([]publish.Node, error) // the site, as it was when the plan was made
	// brings what overlays of a wave name, see [publish.Options]; nil is nothing
	First   func(context.Context) error
	Reports func(context.Context, report.Asked) (map[string]report.Standing, error) // by node; those of others do no harm
	// nodes that are disturbed with a slot → what; nil is none. A budget counts them
	Slots   func(context.Context) (map[string]string, error)
	Measure func(context.Context, spec.Analysis, time.Time) (analysis.Measured, error) // asks a Prometheus; nil is none
	Now     func() time.Time
	Say     func(format string, args ...any)

	nodes map[string]publish.Node // compiled once
	heard report.Heard            // what nodes reported

	answered bool // the service, once
}

// ErrHalted is returned for a rollout that stopped itself.
var ErrHalted = errors.New("the rollout halted")

// ErrLeftOut is returned for a rollout that has ended, and not all of its nodes have what
// it brings.
var ErrLeftOut = errors.New("the rollout ended without some of its nodes")

// Run steps until the rollout ends or an operator has to decide, every interval. What
// fails for a while, a registry or the service, is said and tried again; a service that
// never answered is an error.
func (d *Driver) Run(ctx context.Context, interval time.Duration) error {
	said := ""
	for first := true; ; first = false {
		moved, decision, err := d.Step(ctx)
		switch {
		case first && errors.Is(err, ErrEnded):
			return cli.WithHint(fmt.Errorf("rollout %s has ended already", d.Name), "'caisson rollout start' begins another")
		case err != nil && (ctx.Err() != nil || final(err)):
			return err
		case err != nil && err.Error() != said:
			said = err.Error()
			d.Say("%v; trying again every %s", err, interval)
		case err != nil:
		case moved:
			continue
		case decision.Reason != said:
			said = decision.Reason
			d.Say("%s", said)
		}
		if stall.Rest(ctx, interval) != nil {
			return fmt.Errorf("rollout %s goes on with the next run: %w", d.Name, ctx.Err())
		}
	}
}

// ErrEnded ends a run whose rollout has ended as everybody wants.
var ErrEnded = errors.New("the rollout has ended")

// final reports whether an error will not go away by itself.
func final(err error) bool {
	var usage *stop
	return errors.As(err, &usage) || refusal.Of(err) != ""
}

// stop is an error that an operator has to look at.
type stop struct{ error }

func (s *stop) Unwrap() error { return s.error }

// Once takes the next step of the rollout, if there is one now, and says why there is none.
func (d *Driver) Once(ctx context.Context) error {
	_, what, err := d.Step(ctx)
	switch {
	case err == nil && what.Act == Wait:
		d.Say("%s", what.Reason)
	case err == nil && what.Act == Halt:
		return fmt.Errorf("%w: %s", ErrHalted, what.Reason)
	}
	return err
}

// Step takes the next step of the rollout, if there is one now.
func (d *Driver) Step(ctx context.Context) (moved bool, last Decision, err error) {
	d.Publisher.Kept = cmp.Or(d.Publisher.Kept, &published.Shards{})
	p := d.Publisher
	p.Now, p.Clock = d.Now(), d.Now
	f, err := p.Read(ctx, d.Policy)
	if err != nil {
		return false, last, err
	}
	row, err := d.goesOn(f)
	if err != nil {
		return false, last, err
	}
	plan, err := f.Plan(ctx, d.Name, row)
	if err != nil {
		return false, last, err
	}
	// Most looks end with nothing to do, and keep no other publisher out.
	if last, err = d.decide(ctx, f, plan, row); err != nil || last.Act == Wait && !f.Reserved() {
		return false, last, err
	}
	var took *publish.Step
	result, err := p.Advance(ctx, d.Policy, d.Name, d.By, func(ctx context.Context, f *published.Fleet) (step *publish.Step, err error) {
		now, err := d.goesOn(f)
		if err != nil || now.Plan != row.Plan { // another rollout of that name has its own plan
			return nil, err
		}
		if last, err = d.decide(ctx, f, plan, now); err != nil || last.Act == Wait {
			return nil, err
		}
		took, err = d.step(ctx, f, plan, now, last)
		return took, err
	})
	if result != nil && err == nil && took != nil {
		d.tell(plan, last, result)
	}
	return result != nil, last, err
}

// needed returns how many waves of a plan a decision looks at: those that began, and up to the
// next one that not all nodes are kept out of.
func needed(plan *spec.RolloutPlan, row spec.Rollout, rows index.Rows, now time.Time) int {
	n := len(row.Waves)
	for ; n < len(plan.Waves); n++ {
		for name := range plan.Waves[n].Nodes {
			if r, there := rows[name]; there && held(r, now) == "" {
				return n + 1
			}
		}
	}
	return n
}

// goesOn returns the row of the rollout, where there may be something to do.
func (d *Driver) goesOn(f *published.Fleet) (spec.Rollout, error) {
	row, ok := f.Rollouts()[d.Name]
	if !ok {
		return row, &stop{cli.WithHint(fmt.Errorf("the fleet has no rollout %q", d.Name), "'caisson rollout start' begins one")}
	}
	switch {
	case row.Phase == spec.RolloutRunning || wasCut(row):
		return row, nil
	case row.Phase == spec.RolloutDone && len(leftOut(row))+len(failed(row)) > 0:
		return row, &stop{fmt.Errorf("%w: %s", ErrLeftOut, row.Reason)}
	case row.Phase == spec.RolloutDone:
		return row, &stop{ErrEnded}
	case row.Phase == spec.RolloutHalted:
		return row, &stop{fmt.Errorf("%w: %s", ErrHalted, row.Reason)}
	}
	return row, &stop{cli.WithHint(fmt.Errorf("rollout %s is %s: %s", d.Name, row.Phase, row.Reason),
		"'caisson rollout status' tells all of it")}
}

// decide asks what the nodes report, and what follows from it. The time is taken before they
// are asked, and behind every wait: what they reported until then is known.
func (d *Driver) decide(ctx context.Context, f *published.Fleet, plan *spec.RolloutPlan, row spec.Rollout) (last Decision, err error) {
	if row.Phase != spec.RolloutRunning && plan.Budget == nil {
		return Decision{Act: Return, Wave: len(row.Waves) - 1}, nil
	}
	if len(plan.Rule.Analysis) > 0 && d.Measure == nil {
		return last, &stop{cli.WithHint(fmt.Errorf("rollout %s has analyses, and no Prometheus is named", d.Name),
			"as in --prometheus https://prometheus.example.org")}
	}
	now := d.Now()
	rows, err := f.Nodes(ctx)
	if err != nil {
		return last, err
	}
	known := Known{Rows: rows, Cut: f.Reserved()}
	if known.Left, err = leftSince(ctx, f, plan, row, rows); err != nil {
		return last, err
	}
	asked := report.Asked{Fleet: d.Policy.Fleet, Plan: row.Plan, Waves: needed(plan, row, rows, now), All: plan.Budget != nil,
		Published: map[string]bool{}, Heard: &d.heard}
	for name := range rows {
		asked.Published[name] = true
	}
	for _, w := range plan.Waves { // new nodes have no row yet
		for name := range w.Nodes {
			asked.Published[name] = true
		}
	}
	if known.Reports, err = d.Reports(ctx, asked); err == nil && plan.Budget != nil {
		known.Busy, err = d.busy(ctx, f)
	}
	if err != nil {
		err = fmt.Errorf("ask what the nodes report: %w", err)
		if !d.answered && ctx.Err() == nil {
			err = &stop{err}
		}
		return last, err
	}
	d.answered = true
	if row.Phase == spec.RolloutRunning && len(row.Waves) > 0 {
		known.Measured = d.measured(ctx, plan, now)
	}
	if row.Phase != spec.RolloutRunning {
		return nextBack(plan, row, known, now), nil
	}
	return Next(plan, row, known, now), nil
}

// busy returns the nodes that something else disturbs: other rollouts, and operations with a slot.
func (d *Driver) busy(ctx context.Context, f *published.Fleet) (map[string]string, error) {
	busy := InFlight(f.Rollouts(), d.Name)
	if d.Slots == nil {
		return busy, nil
	}
	slots, err := d.Slots(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask who holds a slot: %w", err)
	}
	maps.Copy(busy, slots)
	return busy, nil
}

// leftSince returns the nodes of waves that are to begin that have no row any more: they
// were retired, or left the site, after the plan was made.
func leftSince(ctx context.Context, f *published.Fleet, plan *spec.RolloutPlan, row spec.Rollout,
	rows index.Rows) (left map[string]bool, err error) {
	n := len(row.Waves)
	if n > 0 && row.Waves[n-1].Done == 0 {
		if plan.Budget == nil {
			return nil, nil
		}
		n-- // not all of its nodes have moved
	}
	var past *published.Past // read only where a row is missing
	left = map[string]bool{}
	for _, w := range plan.Waves[n:] {
		for name := range w.Nodes {
			if _, there := rows[name]; there {
				continue
			}
			if past == nil {
				if past, err = f.Past(ctx, published.Generation{Epoch: plan.Before.Epoch, Number: plan.Before.Generation}); err != nil {
					return nil, err
				}
			}
			if _, left[name], err = past.Row(ctx, name); err != nil {
				return nil, err
			}
		}
	}
	return left, nil
}

// compiled returns the nodes of a wave with their overlays: those that the plan names
// by digest, or none.
func (d *Driver) compiled(ctx context.Context, plan *spec.RolloutPlan, what Decision) ([]publish.Node, error) {
	if d.nodes == nil {
		all, err := d.Compile(ctx, plan)
		if err != nil {
			return nil, err
		}
		d.nodes = plain.Map(all, named)
	}
	var out []publish.Node
	for _, name := range what.Nodes {
		n, ok := d.nodes[name]
		if !ok {
			return nil, changed(plan, name)
		}
		doc, err := n.Doc()
		if err != nil {
			return nil, err
		}
		if oci.Digest(doc) != plan.Gives(name) {
			return nil, changed(plan, name)
		}
		out = append(out, n)
	}
	return out, nil
}

func named(n publish.Node) (string, publish.Node) { return n.Name, n }

func changed(plan *spec.RolloutPlan, node string) error {
	return cli.WithHint(fmt.Errorf("node %s is not what the plan of rollout %s was signed for: the site has changed", node, plan.Name),
		"run it with the site as it was at "+time.Unix(plan.At, 0).UTC().Format(time.RFC3339)+"; or abort it, and start another")
}

func (d *Driver) tell(plan *spec.RolloutPlan, what Decision, r *publish.Result) {
	name := plan.Waves[max(what.Wave, 0)].Name
	switch what.Act {
	case Begin:
		for i := what.First; i < what.Wave; i++ {
			d.Say("wave %s: no nodes left: %s", plan.Waves[i].Name, some(what.Of[i].LeftOut))
		}
		d.Say("wave %s: begins with %s, generation %d", name, plain.Count(len(what.Nodes), "node"), r.Generation)
		if out := what.Of[what.Wave].LeftOut; len(out) > 0 {
			d.Say("wave %s: left out: %s", name, some(out))
		}
	case More:
		if n := len(what.Nodes); n > 0 {
			d.Say("wave %s: %d healthy, goes on with %s: %s", name, what.Good, plain.Count(n, "node"), first(what.Nodes))
		}
	case Late:
		d.Say("wave %s: waits for %s of waves before that came back: %s", name, plain.Count(len(what.Nodes), "node"), first(what.Nodes))
	case Finish:
		d.Say("wave %s: done, %d healthy", name, what.Good)
		if failed := what.Of[what.Wave].Failed; len(failed) > 0 {
			d.Say("wave %s: failed: %s", name, some(failed))
		}
	case Halt, Return:
		if n := len(r.Published); n > 0 {
			d.Say("wave %s: halts, to go back: %s", name, plain.Count(n, "node")) // Run returns the reason
		}
		if len(r.Stay) > 0 {
			d.Say("wave %s: do not go back: %s", name, some(r.Stay))
		}
	}
}
