// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// MaxPlan holds a million nodes with names of forty characters.
const MaxPlan = 192 << 20

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
	return f.r.Kept.plan(planned{name, r.Plan}, func() (*spec.RolloutPlan, error) {
		return ReadPlan(ctx, f.r.Registry.Source(), f.v.Policy.Fleet, name, r)
	})
}

// ReadPlan reads the plan of a rollout that an index names.
func ReadPlan(ctx context.Context, src oci.Source, fleet, name string, r spec.Rollout) (*spec.RolloutPlan, error) {
	resp, err := src.Manifest(ctx, oci.RepoFleet, r.Plan, "")
	if err != nil {
		return nil, fmt.Errorf("plan of rollout %s: %w", name, err)
	}
	doc, _, err := oci.ReadDocument(ctx, src, resp, oci.Artifact{Repo: oci.RepoFleet, Type: oci.TypeRollout, Limit: MaxPlan})
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
