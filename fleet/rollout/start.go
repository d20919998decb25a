// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/analysis"
	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/waves"
)

// Order holds what a rollout is asked for.
type Order struct {
	Name      string
	Rule      spec.RolloutRule
	Divide    func(takes func(node string) bool) []waves.Wave // its nodes that are taken, in waves
	Nodes     []publish.Node                                  // compiled, of the whole site
	At        time.Time                                       // the date that they were compiled for
	Reference string                                          // digest by which their layers are found; "" without layers
	Named     bool                                            // an operator named that digest
	Budget    *spec.RolloutBudget                             // how many may be unavailable at once; nil: those of a wave move together
	// what was given out last when somebody agreed to this; nil: whatever it is
	From *spec.Floor
}

// NewPlan compares an order with what is published. Nodes that have already what they
// would get are in no wave, and no share of a wave: the first wave is of nodes that change.
func NewPlan(f *published.Fleet, rows index.Rows, o Order) (*spec.RolloutPlan, error) {
	plan := &spec.RolloutPlan{APIVersion: spec.APIVersion, Kind: spec.KindRolloutPlan, Fleet: f.Policy().Fleet, Name: o.Name,
		Before: f.Floor(), Reference: o.Reference, Named: o.Named, Rule: o.Rule, Budget: o.Budget}
	byName := plain.Map(o.Nodes, named)
	brings, has := map[string]bool{}, map[string]bool{}
	for _, row := range rows { // of the whole fleet: other nodes go on with what they run
		has[row.Layer] = true
	}
	gets := map[string]string{} // node → overlay, of those that change
	for _, w := range o.Divide(func(string) bool { return true }) {
		for _, name := range w.Nodes {
			doc, err := byName[name].Doc()
			if err != nil {
				return nil, fmt.Errorf("node %s: %w", name, err)
			}
			row, there := rows[name]
			if digest := oci.Digest(doc); !there || row.Overlay != digest {
				gets[name] = digest
				brings[byName[name].Layer] = true
			}
		}
	}
	for _, w := range o.Divide(func(name string) bool { return gets[name] != "" }) {
		wave := spec.Wave{Name: w.Name, Nodes: map[string]string{}}
		for _, name := range w.Nodes {
			wave.Nodes[name] = gets[name]
		}
		plan.Waves = append(plan.Waves, wave)
	}
	for _, l := range slices.Sorted(maps.Keys(brings)) {
		if l != "" && !has[l] {
			plan.Layers = append(plan.Layers, l)
		}
	}
	if plan.Waves == nil {
		return nil, cli.WithHint(fmt.Errorf("rollout %s would change nothing", o.Name), "its nodes have what the site says")
	}
	return plan, nil
}

// Start signs a plan and puts it into the fleet's index. Nothing is published yet. Nodes
// that are held now are named, with why.
func Start(ctx context.Context, p *publish.Publisher, policy published.Policy, by publish.By,
	o Order) (plan *spec.RolloutPlan, held map[string]string, err error) {
	started, from := false, o.From
	for range mends {
		var result *publish.Result
		result, err = p.Advance(ctx, policy, o.Name, by, func(ctx context.Context, f *published.Fleet) (*publish.Step, error) {
			if now := f.Floor(); from != nil && *from != now {
				return nil, cli.WithHint(fmt.Errorf("rollout %s was agreed to at generation %d, and generation %d was given out "+
					"meanwhile", o.Name, from.Generation, now.Generation), "look at the plan again")
			}
			if f.Reserved() {
				return nil, nil // what was cut is put right first: a plan goes back to a generation
			}
			if plan, held, err = begins(ctx, f, o); err != nil {
				return nil, err
			}
			started = true
			return &publish.Step{Plan: plan, What: "start",
				Row: spec.Rollout{Phase: spec.RolloutRunning, Since: f.Now().Unix(), Author: by.Author, Reason: by.Reason}}, nil
		})
		if err != nil || started {
			return plan, held, err
		}
		if from != nil && result != nil { // that what was cut is put right takes a generation
			from = &spec.Floor{Epoch: result.Epoch, Generation: result.Generation}
		}
	}
	return nil, nil, fmt.Errorf("rollout %s could not start: the previous publish is unfinished", o.Name)
}

// Preview is [Start] that signs nothing.
func Preview(ctx context.Context, p *publish.Publisher, policy published.Policy, o Order) (*spec.RolloutPlan, map[string]string, error) {
	f, err := p.Read(ctx, policy)
	if err != nil {
		return nil, nil, err
	}
	return begins(ctx, f, o)
}

// begins makes the plan of a rollout that may start: what its waves are to publish would
// not be refused now.
func begins(ctx context.Context, f *published.Fleet, o Order) (*spec.RolloutPlan, map[string]string, error) {
	rows, err := f.Nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	plan, err := NewPlan(f, rows, o)
	if err != nil {
		return nil, nil, err
	}
	plan.At = o.At.Unix()
	for _, a := range plan.Rule.Analysis {
		if len(analysis.Waves(plan, a)) == 0 {
			others := ""
			if a.Against != "" {
				others = " and leaves as many that have not moved"
			}
			return nil, nil, cli.WithHint(fmt.Errorf("rollout %s: the analysis %q judges no wave: none has %d nodes%s", o.Name,
				a.Query, a.AtLeast, others), "set atLeast lower, or change the waves")
		}
	}
	if err := free(ctx, f, plan); err != nil {
		return nil, nil, err
	}
	kept := map[string]string{}
	var moves []publish.Node
	for _, n := range o.Nodes {
		switch why := held(rows[n.Name], f.Now()); {
		case plan.Gives(n.Name) == "":
		case why != "":
			kept[n.Name] = why
		default:
			moves = append(moves, n)
		}
	}
	return plan, kept, publish.Rehearse(ctx, f, moves, o.Named)
}

// mends is how many publishes that were cut are put right before something is done.
const mends = 3

// free refuses a plan for nodes of a rollout that has not ended.
func free(ctx context.Context, f *published.Fleet, plan *spec.RolloutPlan) error {
	for name, r := range f.Rollouts() {
		if r.Ended() {
			continue
		}
		hint := "'caisson rollout abort' or 'caisson rollout undo' ends it"
		if name == plan.Name {
			return cli.WithHint(fmt.Errorf("rollout %s is %s already", name, r.Phase), hint)
		}
		other, err := f.Plan(ctx, name, r)
		if err != nil {
			return err
		}
		for _, w := range plan.Waves {
			for _, node := range slices.Sorted(maps.Keys(w.Nodes)) {
				if slices.ContainsFunc(other.Waves, func(o spec.Wave) bool { return o.Nodes[node] != "" }) {
					return cli.WithHint(fmt.Errorf("node %s belongs to rollout %s, which is %s", node, name, r.Phase), hint)
				}
			}
		}
	}
	return nil
}

// Verb is an operator's act on a rollout.
type Verb string

// Verbs.
const (
	Pause  Verb = "pause"  // no wave begins or ends
	Resume Verb = "resume" // after a pause, or a halt: a wave that did not end begins again
	Abort  Verb = "abort"  // end it where it is
	Undo   Verb = "undo"   // end it, and give all of its nodes what they had; once more after that for those that stayed
)

// Do does it.
func (v Verb) Do(ctx context.Context, p *publish.Publisher, policy published.Policy, by publish.By, name string) (*publish.Result, error) {
	return p.Advance(ctx, policy, name, by, func(ctx context.Context, f *published.Fleet) (*publish.Step, error) {
		row, ok := f.Rollouts()[name]
		if !ok {
			return nil, cli.WithHint(fmt.Errorf("the fleet has no rollout %q", name), "'caisson rollout status' lists them")
		}
		plan, err := f.Plan(ctx, name, row)
		if err != nil {
			return nil, err
		}
		c := &course{f: f, plan: plan, now: f.Now().Unix(), only: unproved(row)}
		return c.act(ctx, row, v, by)
	})
}

// unproved returns the nodes that are not proved: they go back at once, whatever the budget. Those
// that failed may be well by now, as a report shows the driver that goes on with the way back.
func unproved(row spec.Rollout) map[string]bool {
	names := map[string]bool{}
	for _, w := range row.Waves {
		for name := range w.Moving {
			names[name] = true
		}
	}
	return names
}

// allBack wants that all nodes of a rollout with a budget can go back, those that follow later,
// too.
func (c *course) allBack(ctx context.Context, row spec.Rollout) error {
	if c.plan.Budget == nil {
		return nil // all go now
	}
	given := ofAll(c.plan.Waves[:len(row.Waves)], func(w spec.Wave) map[string]string { return w.Nodes })
	back, err := hold.ReadyBack(ctx, c.f, given, c.plan.Before)
	if err != nil {
		return err
	}
	return back.Lost
}

// phases says from which phases a verb leads to which.
var phases = map[Verb]struct {
	to   string
	from []string
}{
	Pause:  {spec.RolloutPaused, []string{spec.RolloutRunning}},
	Resume: {spec.RolloutRunning, []string{spec.RolloutPaused, spec.RolloutHalted}},
	Abort:  {spec.RolloutAborted, []string{spec.RolloutRunning, spec.RolloutPaused, spec.RolloutHalted}},
	// once more, for nodes that stayed
	Undo: {spec.RolloutUndone, []string{spec.RolloutRunning, spec.RolloutPaused, spec.RolloutHalted, spec.RolloutAborted,
		spec.RolloutDone, spec.RolloutUndone}},
}

// act returns the step of an operator's verb.
func (c *course) act(ctx context.Context, row spec.Rollout, verb Verb, by publish.By) (s *publish.Step, err error) {
	move := phases[verb]
	stayed := slices.ContainsFunc(row.Waves, func(w spec.RolloutWave) bool { return len(w.Stayed) > 0 })
	if !slices.Contains(move.from, row.Phase) || row.Phase == spec.RolloutUndone && !stayed {
		return nil, fmt.Errorf("%s rollout %s: it is %s", verb, c.plan.Name, row.Phase)
	}
	row.Waves = slices.Clone(row.Waves)
	row.Phase, row.Since, row.Author, row.Reason = move.to, c.now, by.Author, by.Reason
	s = &publish.Step{What: string(verb)}
	switch verb {
	case Undo:
		if err = c.allBack(ctx, row); err == nil {
			err = c.all(ctx, &row, s)
		}
		if err == nil {
			err = c.lost // an operator decides about that before anything changes
		}
		if err != nil {
			return nil, fmt.Errorf("undo rollout %s: %w", c.plan.Name, err)
		}
	case Abort:
		if err := c.begunAndCut(ctx, &row); err != nil {
			return nil, err
		}
	case Resume:
		if err := c.f.Allowed(c.plan.Layers...); err != nil {
			return nil, fmt.Errorf("resume rollout %s: %w", c.plan.Name, err)
		}
		// What nodes were given before the break does not count now.
		row.Waves = row.Waves[:whole(c.plan, row)]
	}
	s.Row = row
	return s, nil
}

// whole returns how many of a rollout's waves, from the first one on, need not begin again.
func whole(plan *spec.RolloutPlan, row spec.Rollout) int {
	for i, w := range row.Waves {
		if w.Done == 0 || w.Back != 0 || halts(plan.Rule, len(w.Failed), len(plan.Waves[i].Nodes)-len(w.LeftOut)) {
			return i
		}
	}
	return len(row.Waves)
}
