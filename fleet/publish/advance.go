// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Step moves a rollout: its row changes, and nodes get something else.
type Step struct {
	Row    spec.Rollout
	Plan   *spec.RolloutPlan // of a rollout that starts; Row.Plan is filled in
	Nodes  []Node            // they get their overlays; those that are held keep theirs
	Named  bool              // their layers may be older than what they have
	Back   *Back             // nodes that get what they had; nil is none
	Reject []string          // digests of layers that no node may run any more

	// What the history says of it: the rollout and what becomes of it, and why.
	What, Why string
	// The rollout's row as it is should this be cut before all nodes have moved; nil is
	// as it was.
	Cut *spec.Rollout

	First  func(context.Context) error // brings what overlays of Nodes name, as [Options.First]; nil is nothing
	Placed func()                      // is called once what nodes get is in the registry, before Row is; nil is nothing
}

// Advance lets decide take the next step of a rollout, while no other publisher
// changes the fleet: of two that run a rollout each sees what the other has done. Nil
// is not a step: then what a publish that was cut has left is put right, if it did.
func (p *Publisher) Advance(ctx context.Context, policy Policy, name string, by By, decide func(context.Context, *Fleet) (*Step, error)) (result *Result, err error) {
	if !policy.Beside { // else the versions say whose keys count
		if err := p.checkSigners(policy); err != nil {
			return nil, err
		}
	}
	err = p.runAlone(ctx, policy, purpose{publish: policy.Site, half: true}, func(ctx context.Context, run *Publisher, batch *registry.Batch, v *view) error {
		if v.index == nil {
			return p.unpublished()
		}
		if policy.Beside {
			policy = v.policy
			if err := run.checkSigners(policy); err != nil {
				return err
			}
		}
		step, err := decide(ctx, &Fleet{run, v})
		if err == nil && step == nil && v.index.Root.Reserved {
			result, err = run.repair(ctx, v, batch)
			return err
		}
		if err != nil || step == nil {
			return err
		}
		if step.Plan != nil {
			if step.Row.Plan, err = run.putPlan(ctx, *step.Plan); err != nil {
				return err
			}
		}
		result, err = run.step(ctx, v, batch, name, by, step)
		return err
	})
	return result, err
}

// step writes a step.
func (p *Publisher) step(ctx context.Context, v *view, batch *registry.Batch, name string, by By, step *Step) (*Result, error) {
	x := v.next()
	x.Root.Generation = max(x.Root.Generation, v.seen.Reserved) + 1
	x.Root.Rollouts = withRollout(x.Root.Rollouts, name, step.Row)
	result := newResult(x.Root)
	c := &change{by: by, verb: strings.TrimSpace(verbOfRollout + name + " " + step.What), index: x, rows: true, placed: step.Placed}
	c.by.Reason = cmp.Or(step.Why, by.Reason)
	if step.Cut != nil {
		c.cut = withRollout(v.index.Root.Rollouts, name, *step.Cut)
	}
	var err error
	if c.reject, err = v.list(Lists{Reject: step.Reject}); err != nil {
		return nil, err
	}
	s := &selected{p: p, policy: v.policy, x: x, result: result, c: c}
	if s.rows, err = v.index.All(ctx); err != nil {
		return nil, err
	}
	for _, n := range step.Nodes {
		if err := s.add(n); err != nil {
			return nil, err
		}
	}
	if !step.Named {
		if err := p.checkSuccession(ctx, c.todo); err != nil {
			return nil, err
		}
	}
	kept, err := p.renewKept(ctx, v, x, s.held, func(string) bool { return false })
	if err != nil {
		return nil, err
	}
	c.todo = slices.Concat(c.todo, kept)
	if step.Back != nil {
		for _, w := range step.Back.todo {
			w.generation = x.Root.Generation
			c.todo = append(c.todo, w)
		}
		result.Stay = step.Back.Stay
	}
	if err := p.repairTags(ctx, v, c); err != nil {
		return nil, err
	}
	result.Unchanged = x.Len() - len(c.todo) + added(c.todo)
	if step.First != nil && !p.Dry {
		if err := step.First(ctx); err != nil {
			return nil, err
		}
	}
	return result, p.write(ctx, v.policy, v, batch, c, result)
}

// repair takes up a publish that was cut, and changes nothing else.
func (p *Publisher) repair(ctx context.Context, v *view, batch *registry.Batch) (*Result, error) {
	x := v.next()
	x.Root.Generation = max(x.Root.Generation, v.seen.Reserved) + 1
	c := &change{verb: verbMend, index: x, rows: true, reject: v.rejected(), by: By{Reason: "a publish was cut"}}
	if err := p.repairTags(ctx, v, c); err != nil {
		return nil, err
	}
	result := newResult(x.Root)
	return result, p.write(ctx, v.policy, v, batch, c, result)
}

// planLife is how long the signature of a plan is valid. The index names plans by
// digest, so nothing hangs on it.
const planLife = 365 * 24 * time.Hour

// maxPlan holds the nodes of some 200,000.
const maxPlan = 32 << 20

func (p *Publisher) putPlan(ctx context.Context, plan spec.RolloutPlan) (digest string, err error) {
	raw, err := spec.Encode(plan)
	if err != nil {
		return "", err
	}
	if len(raw) > maxPlan {
		return "", fmt.Errorf("the plan of rollout %s has %d bytes, %d is the most", plan.Name, len(raw), maxPlan)
	}
	return p.putFleetDocument(ctx, plan.Fleet, raw, []string{planTag(plan.Name)}, oci.TypeRollout, sign.PredicateRollout, planLife)
}

// planTag keeps the plan of a rollout from a registry's garbage collection.
func planTag(name string) string { return "rollout-" + name }

// Rollouts returns the rows of the fleet's rollouts by name.
func (f *Fleet) Rollouts() map[string]spec.Rollout {
	if f.v.index == nil {
		return nil
	}
	return f.v.index.Root.Rollouts
}

// UnderWay returns the nodes of rollouts that have not ended, with its name: a publish
// refuses to change them.
func (f *Fleet) UnderWay(ctx context.Context) (map[string]string, error) {
	if f.v.index == nil {
		return nil, nil
	}
	return f.p.underWay(ctx, f.v.index.Root)
}

// Plan reads the plan of a rollout. The verified index vouches for it.
func (f *Fleet) Plan(ctx context.Context, name string, r spec.Rollout) (*spec.RolloutPlan, error) {
	return f.p.plan(ctx, f.v.policy.Fleet, name, r)
}

func (p *Publisher) plan(ctx context.Context, fleet, name string, r spec.Rollout) (*spec.RolloutPlan, error) {
	src := p.Registry.Source()
	resp, err := src.Manifest(ctx, oci.RepoFleet, r.Plan, "")
	if err != nil {
		return nil, fmt.Errorf("plan of rollout %s: %w", name, err)
	}
	doc, _, err := oci.ReadDocument(ctx, src, oci.RepoFleet, resp, oci.TypeRollout, maxPlan)
	if err != nil {
		return nil, fmt.Errorf("plan of rollout %s: %w", name, err)
	}
	var plan spec.RolloutPlan
	if err := spec.Decode(doc, &plan); err != nil {
		return nil, fmt.Errorf("plan of rollout %s: %w", name, err)
	}
	if plan.Kind != spec.KindRolloutPlan || plan.Fleet != fleet || plan.Name != name {
		return nil, fmt.Errorf("plan of rollout %s: it is for rollout %q of fleet %q", name, plan.Name, plan.Fleet)
	}
	if g := plan.Rule.Grade; g != "" && g != spec.GradePinned {
		return nil, fmt.Errorf("plan of rollout %s: only reports of grade %.40q count, which this release does not know", name, g)
	}
	return &plan, nil
}

// keptRollouts is how many that ended an index remembers.
const keptRollouts = 8

// withRollout returns the rows with one changed, and without the oldest that ended.
func withRollout(rows map[string]spec.Rollout, name string, row spec.Rollout) map[string]spec.Rollout {
	rows = maps.Clone(rows)
	if rows == nil {
		rows = map[string]spec.Rollout{}
	}
	rows[name] = row
	var ended []string
	for n, r := range rows {
		if r.Ended() && n != name {
			ended = append(ended, n)
		}
	}
	slices.SortFunc(ended, func(a, b string) int { return int(rows[a].Since - rows[b].Since) })
	for _, n := range ended[:max(0, len(ended)-keptRollouts)] {
		delete(rows, n)
	}
	return rows
}

// errUnderWay is returned for a publish that a rollout is to make.
var errUnderWay = errors.New("under way")

// underWay returns the nodes of rollouts that have not ended, with its name.
func (p *Publisher) underWay(ctx context.Context, root spec.FleetIndex) (map[string]string, error) {
	nodes := map[string]string{}
	for name, r := range root.Rollouts {
		if r.Ended() {
			continue
		}
		plan, err := p.plan(ctx, root.Fleet, name, r)
		if err != nil {
			return nil, err
		}
		for _, w := range plan.Waves {
			for node := range w.Nodes {
				nodes[node] = name
			}
		}
	}
	return nodes, nil
}
