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

	// Announced is called once the index says Cut, before any node gets something else; an error
	// ends the step there, as if it were cut. Nil is nothing.
	Announced func(context.Context) error

	First  func(context.Context) error // brings what overlays of Nodes name, as [Options.First]; nil is nothing
	Placed func()                      // is called once what nodes get is in the registry, before Row is; nil is nothing
}

// Advance lets decide take the next step of a rollout, while no other publisher
// changes the fleet: of two that run a rollout each sees what the other has done. Nil
// is not a step: then what a publish that was cut has left is put right, if it did.
func (p *Publisher) Advance(ctx context.Context, policy Policy, name string, by By,
	decide func(context.Context, *Fleet) (*Step, error)) (*Result, error) {
	if err := p.MayPublish(policy); err != nil {
		return nil, err
	}
	return p.runAlone(ctx, policy, purpose{publish: policy.Site, half: true}, func(ctx context.Context, r *run) error {
		if err := r.mayChange(); err != nil {
			return err
		}
		step, err := decide(ctx, r.Fleet)
		switch {
		case err != nil || step == nil && !r.Reserved():
			return err
		case step == nil:
			return r.repair(ctx)
		}
		return r.step(ctx, name, by, step)
	})
}

// step writes a step.
func (r *run) step(ctx context.Context, name string, by By, step *Step) (err error) {
	if step.Plan != nil {
		if step.Row.Plan, err = r.p.putPlan(ctx, *step.Plan); err != nil {
			return err
		}
	}
	x := r.v.following()
	x.Root.Rollouts = withRollout(x.Root.Rollouts, name, step.Row)
	r.begin(strings.TrimSpace(verbOfRollout+name+" "+step.What),
		By{Author: by.Author, Reason: cmp.Or(step.Why, by.Reason), Commit: by.Commit}, x)
	c := r.plan
	c.rows, c.first, c.placed, c.announced = true, step.First, step.Placed, step.Announced
	if step.Cut != nil {
		c.cut = withRollout(r.v.index.Root.Rollouts, name, *step.Cut)
	}
	if c.reject, err = r.v.list(Lists{Reject: step.Reject}); err != nil {
		return err
	}
	s := &selected{run: r, policy: r.v.policy}
	if s.rows, err = r.v.index.All(ctx); err != nil {
		return err
	}
	if err := s.add(ctx, step.Nodes); err != nil {
		return err
	}
	if !step.Named {
		all, err := r.successions(ctx, c.todo)
		if err == nil {
			err = r.checkAges(all)
		}
		if err != nil {
			return err
		}
	}
	kept, err := r.renewKept(ctx, s.held, noNode)
	if err != nil {
		return err
	}
	c.todo = slices.Concat(c.todo, kept)
	if step.Back != nil {
		for _, w := range step.Back.todo {
			w.generation = x.Root.Generation
			c.todo = append(c.todo, w)
		}
		r.result.Stay = step.Back.Stay
	}
	if err := r.repairTags(ctx); err != nil {
		return err
	}
	r.result.Unchanged = x.Len() - len(c.todo) + added(c.todo)
	return r.write(ctx, r.v.policy)
}

// repair takes up a publish that was cut, and changes nothing else.
func (r *run) repair(ctx context.Context) error {
	r.begin(verbMend, By{Reason: "a publish was cut"}, r.v.following())
	r.plan.rows = true
	if err := r.repairTags(ctx); err != nil {
		return err
	}
	return r.write(ctx, r.v.policy)
}

// planLife is how long the signature of a plan is valid. The index names plans by
// digest, so nothing hangs on it.
const planLife = 365 * 24 * time.Hour

// maxPlan holds a million nodes with names of forty characters.
const maxPlan = 192 << 20

func (p *Publisher) putPlan(ctx context.Context, plan spec.RolloutPlan) (digest string, err error) {
	raw, err := spec.Encode(plan)
	if err != nil {
		return "", err
	}
	if len(raw) > maxPlan {
		return "", fmt.Errorf("the plan of rollout %s has %d bytes, %d is the most", plan.Name, len(raw), maxPlan)
	}
	return p.putFleetDocument(ctx, plan.Fleet, statement{raw, []string{planTag(plan.Name)}, oci.TypeRollout, sign.PredicateRollout, planLife})
}

// planTag keeps the plan of a rollout from a registry's garbage collection.
func planTag(name string) string { return "rollout-" + name }

// Rollouts returns the rows of the fleet's rollouts by name.
func (f *Fleet) Rollouts() map[string]spec.Rollout {
	return f.root().Rollouts
}

// UnderWay returns the nodes of rollouts that have not ended, with its name: a publish
// refuses to change them.
func (f *Fleet) UnderWay(ctx context.Context) (map[string]string, error) {
	nodes := map[string]string{}
	for name, r := range f.Rollouts() {
		if r.Ended() {
			continue
		}
		plan, err := f.Plan(ctx, name, r)
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

// Plan reads the plan of a rollout, once where something is kept: it is only read. The verified index
// vouches for it.
func (f *Fleet) Plan(ctx context.Context, name string, r spec.Rollout) (*spec.RolloutPlan, error) {
	return f.p.Kept.plan(planned{name, r.Plan}, func() (*spec.RolloutPlan, error) {
		return readPlan(ctx, f.p.Registry.Source(), f.v.policy.Fleet, name, r)
	})
}

func readPlan(ctx context.Context, src oci.Source, fleet, name string, r spec.Rollout) (*spec.RolloutPlan, error) {
	resp, err := src.Manifest(ctx, oci.RepoFleet, r.Plan, "")
	if err != nil {
		return nil, fmt.Errorf("plan of rollout %s: %w", name, err)
	}
	doc, _, err := oci.ReadDocument(ctx, src, resp, oci.Artifact{Repo: oci.RepoFleet, Type: oci.TypeRollout, Limit: maxPlan})
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
	if g := plan.Rule.Grade; g != "" && g != spec.GradePinned && g != spec.GradeAttested {
		return nil, fmt.Errorf("plan of rollout %s: only reports of grade %.40q count, which this release does not know", name, g)
	}
	if r := plan.Rule.Rehearsed; r != "" && r != spec.RehearsedLayer && r != spec.RehearsedSettings {
		return nil, fmt.Errorf("plan of rollout %s: %.40q must have been rehearsed, which this release does not know", name, r)
	}
	if plan.Budget != nil && plan.Budget.Each <= 0 && plan.Budget.Overall <= 0 {
		return nil, fmt.Errorf("plan of rollout %s: its budget has no bound that this release knows", name)
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
