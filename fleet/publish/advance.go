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

	"github.com/caisson-os/caisson/fleet/published"
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
	Work   []Work            // of nodes that get what they had
	Stay   map[string]string // nodes that do not go back with those, with why
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
func (p *Publisher) Advance(ctx context.Context, policy published.Policy, name string, by By,
	decide func(context.Context, *published.Fleet) (*Step, error)) (*Result, error) {
	if err := p.MayPublish(policy); err != nil {
		return nil, err
	}
	return p.RunAlone(ctx, policy, published.Purpose{Publish: policy.Site, Half: true}, func(ctx context.Context, r *Run) error {
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
func (r *Run) step(ctx context.Context, name string, by By, step *Step) (err error) {
	if step.Plan != nil {
		if step.Row.Plan, err = r.Publisher.putPlan(ctx, *step.Plan); err != nil {
			return err
		}
	}
	x := r.following()
	x.Root.Rollouts = withRollout(x.Root.Rollouts, name, step.Row)
	r.Begin(strings.TrimSpace(published.VerbRollout+name+" "+step.What),
		By{Author: by.Author, Reason: cmp.Or(step.Why, by.Reason), Commit: by.Commit}, x)
	c := r.Plan
	c.Rows, c.first, c.placed, c.announced = true, step.First, step.Placed, step.Announced
	if step.Cut != nil {
		c.cut = withRollout(r.State.Index.Root.Rollouts, name, *step.Cut)
	}
	if c.reject, err = r.list(Lists{Reject: step.Reject}); err != nil {
		return err
	}
	s := &selected{Run: r, policy: r.State.Policy}
	if s.rows, err = r.State.Index.All(ctx); err != nil {
		return err
	}
	if err := s.add(ctx, step.Nodes); err != nil {
		return err
	}
	if !step.Named {
		if _, err := r.successions(ctx, c.Todo, false); err != nil {
			return err
		}
	}
	kept, err := r.RenewKept(ctx, s.held, nil)
	if err != nil {
		return err
	}
	c.Todo = slices.Concat(c.Todo, kept)
	for _, w := range step.Work {
		w.Generation = x.Root.Generation
		c.Todo = append(c.Todo, w)
	}
	r.Result.Stay = step.Stay
	if err := r.repairTags(ctx); err != nil {
		return err
	}
	r.Result.Unchanged = x.Len() - len(c.Todo) + count(c.Todo, func(w Work) bool { return w.Was == nil }) // without those that had no row
	return r.Write(ctx, r.State.Policy)
}

// repair takes up a publish that was cut, and changes nothing else.
func (r *Run) repair(ctx context.Context) error {
	r.Begin(published.VerbMend, By{Reason: "a publish was cut"}, r.following())
	r.Plan.Rows = true
	if err := r.repairTags(ctx); err != nil {
		return err
	}
	return r.Write(ctx, r.State.Policy)
}

// planLife is how long the signature of a plan is valid. The index names plans by
// digest, so nothing hangs on it.
const planLife = 365 * 24 * time.Hour

func (p *Publisher) putPlan(ctx context.Context, plan spec.RolloutPlan) (digest string, err error) {
	raw, err := spec.Encode(plan)
	if err != nil {
		return "", err
	}
	if len(raw) > published.MaxPlan {
		return "", fmt.Errorf("the plan of rollout %s has %d bytes, %d is the most", plan.Name, len(raw), published.MaxPlan)
	}
	return p.putFleetDocument(ctx, plan.Fleet, statement{raw, []string{planTag(plan.Name)}, oci.TypeRollout, sign.PredicateRollout, planLife})
}

// planTag keeps the plan of a rollout from a registry's garbage collection.
func planTag(name string) string { return "rollout-" + name }

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
