// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust/refusal"
)

// Driver drives one rollout.
type Driver struct {
	Publisher publish.Publisher // its Now is set at every step
	Policy    publish.Policy
	By        publish.By
	Name      string
	Compile   func(context.Context, *spec.RolloutPlan) ([]publish.Node, error) // the site, as it was when the plan was made
	First     func(context.Context) error                                      // brings what overlays of a wave name, see [publish.Options]; nil is nothing
	Reports   func(context.Context) (map[string]Report, error)                 // by node
	Now       func() time.Time
	Say       func(format string, args ...any)

	nodes map[string]publish.Node // compiled once
}

// ErrHalted is returned for a rollout that stopped itself.
var ErrHalted = errors.New("the rollout halted")

// Run steps until the rollout ends or an operator has to decide, every interval. What
// fails for a while, a registry or the service, is said and tried again.
func (d *Driver) Run(ctx context.Context, interval time.Duration) error {
	said := ""
	for {
		moved, decision, err := d.Step(ctx)
		switch {
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
		select {
		case <-ctx.Done():
			return fmt.Errorf("rollout %s goes on with the next run: %w", d.Name, ctx.Err())
		case <-time.After(interval):
		}
	}
}

// errEnded ends a run whose rollout has ended well.
var errEnded = errors.New("the rollout has ended")

// Ended reports whether a run's error is the end of the rollout that everybody wants.
func Ended(err error) bool { return errors.Is(err, errEnded) }

// final reports whether an error will not go away by itself.
func final(err error) bool {
	var usage *stop
	return errors.As(err, &usage) || refusal.Of(err) != ""
}

// stop is an error that an operator has to look at.
type stop struct{ error }

func (s *stop) Unwrap() error { return s.error }

// Step takes the next step of the rollout, if there is one now.
func (d *Driver) Step(ctx context.Context) (moved bool, last Decision, err error) {
	d.Publisher.Now = d.Now()
	p := d.Publisher
	f, err := p.Read(ctx, d.Policy)
	if err != nil {
		return false, last, err
	}
	reports, err := d.Reports(ctx)
	if err != nil {
		return false, last, fmt.Errorf("ask what the nodes report: %w", err)
	}
	// Most looks end with nothing to do, and keep no other publisher out.
	plan, row, last, err := d.decide(ctx, f, reports)
	if err != nil || last.Act == Wait {
		return false, last, err
	}
	mended := true // a publish that was cut, instead of a step
	result, err := p.Advance(ctx, d.Policy, d.Name, d.By, func(ctx context.Context, f *publish.Fleet) (step *publish.Step, err error) {
		mended = false
		if plan, row, last, err = d.decide(ctx, f, reports); err != nil || last.Act == Wait {
			return nil, err
		}
		return d.step(ctx, f, plan, row, last)
	})
	if result != nil && err == nil && !mended {
		d.tell(plan, last, result)
	}
	return result != nil, last, err
}

func (d *Driver) decide(ctx context.Context, f *publish.Fleet, reports map[string]Report) (*spec.RolloutPlan, spec.Rollout, Decision, error) {
	row, ok := f.Rollouts()[d.Name]
	if !ok {
		return nil, row, Decision{}, &stop{cli.WithHint(fmt.Errorf("the fleet has no rollout %q", d.Name), "'caisson rollout start' begins one")}
	}
	switch row.Phase {
	case spec.RolloutDone:
		return nil, row, Decision{}, &stop{errEnded}
	case spec.RolloutHalted:
		return nil, row, Decision{}, &stop{fmt.Errorf("%w: %s", ErrHalted, row.Reason)}
	case spec.RolloutRunning:
	default:
		return nil, row, Decision{}, &stop{fmt.Errorf("rollout %s is %s: %s", d.Name, row.Phase, row.Reason)}
	}
	plan, err := f.Plan(ctx, d.Name, row)
	if err != nil {
		return nil, row, Decision{}, err
	}
	rows, err := f.Nodes(ctx)
	if err != nil {
		return nil, row, Decision{}, err
	}
	left, err := leftSince(ctx, f, plan, row, rows)
	if err != nil {
		return nil, row, Decision{}, err
	}
	return plan, row, Next(plan, row, rows, left, reports, d.Publisher.Now), nil
}

// leftSince returns the nodes of the wave that is to begin that have no row any more:
// they were retired, or left the site, after the plan was made.
func leftSince(ctx context.Context, f *publish.Fleet, plan *spec.RolloutPlan, row spec.Rollout, rows index.Rows) (map[string]bool, error) {
	n := len(row.Waves)
	if row.Phase != spec.RolloutRunning || n == len(plan.Waves) || n > 0 && row.Waves[n-1].Done == 0 {
		return nil, nil
	}
	var past *publish.Past // read only where a row is missing
	left := map[string]bool{}
	for name := range plan.Waves[n].Nodes {
		if _, there := rows[name]; there {
			continue
		}
		var err error
		if past == nil {
			if past, err = f.Past(ctx, publish.Generation{Epoch: plan.Before.Epoch, Number: plan.Before.Generation}); err != nil {
				return nil, err
			}
		}
		if _, left[name], err = past.Row(ctx, name); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// step makes a decision a step.
func (d *Driver) step(ctx context.Context, f *publish.Fleet, plan *spec.RolloutPlan, row spec.Rollout, what Decision) (s *publish.Step, err error) {
	now := d.Publisher.Now.Unix()
	row.Waves = slices.Clone(row.Waves)
	s = &publish.Step{Named: plan.Named}
	switch what.Act {
	case Begin:
		w := spec.RolloutWave{Begun: now, LeftOut: what.LeftOut}
		if len(what.Nodes) == 0 {
			w.Done = now
		}
		row.Waves = append(row.Waves, w)
		if s.Nodes, err = d.compiled(ctx, plan, what); err != nil {
			return nil, &stop{err}
		}
		s.First = d.First
	case Finish:
		w := &row.Waves[what.Wave]
		w.Done, w.Failed, w.LeftOut = now, what.Failed, what.LeftOut
	case Halt:
		row.Waves[what.Wave].Failed, row.Waves[what.Wave].LeftOut = what.Failed, what.LeftOut
		row.Phase, row.Since, row.Author, row.Reason = spec.RolloutHalted, now, d.By.Author, what.Reason
		// What cannot go back stays, and is named: the others do not wait for it.
		switch plan.Rule.Undo {
		case spec.UndoWave:
			s.Back, err = goBack(ctx, f, plan, &row, what.Wave, now)
		case spec.UndoAll:
			s.Reject = plan.Layers
			s.Back, err = goBack(ctx, f, plan, &row, 0, now)
		}
		if err != nil {
			return nil, err
		}
	}
	if n := len(row.Waves); n == len(plan.Waves) && row.Waves[n-1].Done != 0 && row.Phase == spec.RolloutRunning {
		row.Phase, row.Since = spec.RolloutDone, now
	}
	s.Row = row
	return s, nil
}

// goBack marks the waves from one on as gone back, with the nodes that did not, and
// prepares what their nodes had. Of a wave that went back before, it is the nodes that
// did not then.
func goBack(ctx context.Context, f *publish.Fleet, plan *spec.RolloutPlan, row *spec.Rollout, from int, now int64) (*publish.Back, error) {
	given := map[string]string{}
	for i := from; i < len(row.Waves); i++ {
		for name, overlay := range plan.Waves[i].Nodes {
			if row.Waves[i].Back == 0 || row.Waves[i].Stayed[name] != "" {
				given[name] = overlay
			}
		}
	}
	back, err := f.Back(ctx, given, plan.Before)
	if err != nil {
		return nil, err
	}
	for i := from; i < len(row.Waves); i++ {
		w := &row.Waves[i]
		w.Back, w.Stayed = cmp.Or(w.Back, now), nil
		for name := range plan.Waves[i].Nodes {
			if why := back.Stay[name]; why != "" {
				if w.Stayed == nil {
					w.Stayed = map[string]string{}
				}
				w.Stayed[name] = why
			}
		}
	}
	return back, nil
}

// compiled returns the nodes of a wave with their overlays: those that the plan names
// by digest, or none.
func (d *Driver) compiled(ctx context.Context, plan *spec.RolloutPlan, what Decision) ([]publish.Node, error) {
	if d.nodes == nil {
		all, err := d.Compile(ctx, plan)
		if err != nil {
			return nil, err
		}
		d.nodes = map[string]publish.Node{}
		for _, n := range all {
			d.nodes[n.Name] = n
		}
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
		if oci.Digest(doc) != plan.Waves[what.Wave].Nodes[name] {
			return nil, changed(plan, name)
		}
		out = append(out, n)
	}
	return out, nil
}

func changed(plan *spec.RolloutPlan, node string) error {
	return cli.WithHint(fmt.Errorf("node %s is not what the plan of rollout %s was signed for: the site has changed", node, plan.Name),
		"run it with the site as it was at "+time.Unix(plan.At, 0).UTC().Format(time.RFC3339)+"; or abort it, and start another")
}

func (d *Driver) tell(plan *spec.RolloutPlan, what Decision, r *publish.Result) {
	if plan == nil || what.Act == "" || what.Act == Wait {
		return
	}
	name := plan.Waves[what.Wave].Name
	switch what.Act {
	case Begin:
		d.Say("wave %s: begins with %s, generation %d", name, plain.Count(len(what.Nodes), "node"), r.Generation)
		if len(what.LeftOut) > 0 {
			d.Say("wave %s: left out: %s", name, some(what.LeftOut))
		}
	case Finish:
		d.Say("wave %s: done, %d well", name, what.Good)
		if len(what.Failed) > 0 {
			d.Say("wave %s: failed: %s", name, some(what.Failed))
		}
	case Halt:
		d.Say("wave %s: halts, to go back: %s", name, plain.Count(len(r.Published), "node")) // Run returns the reason
		if len(r.Stay) > 0 {
			d.Say("wave %s: do not go back: %s", name, some(r.Stay))
		}
	}
}
