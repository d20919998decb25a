// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// step is how soon a namespace is looked at again whose rollout is under way.
const step = 30 * time.Second

// errNoReports is said where a Rollout covers nodes, and nobody knows how they are.
var errNoReports = errors.New("a Rollout covers nodes that would change, and caisson-kube has no --fleet for the namespace, whose reports let a wave begin")

// underWay returns the rollout that moves nodes now, "" where none does.
func underWay(fleet *publish.Fleet) string {
	var names []string
	for name, one := range fleet.Rollouts() {
		if one.Phase == spec.RolloutRunning {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}

// move takes the next step of a rollout, if there is one now, and says what it waits for. The
// plan was signed when it started: what objects say since comes after it.
func (r *Reconciler) move(ctx context.Context, o objects, w *work, name string) (moved bool, waits string, err error) {
	if r.Reports == nil {
		return false, "", errNoReports
	}
	d := &rollout.Driver{Publisher: *w.publisher, Policy: w.policy, By: publish.By{Author: "caisson-kube", Reason: "the next step of rollout " + name}, Name: name, Say: w.publisher.Say,
		Now: r.time,
		Reports: func(ctx context.Context, asked rollout.Asked) (map[string]rollout.Report, error) {
			return r.Reports(ctx, o.namespace, asked)
		},
		Compile: func(ctx context.Context, plan *spec.RolloutPlan) ([]publish.Node, error) {
			s, problems, err := r.parseAt(ctx, time.Unix(plan.At, 0).UTC(), o)
			if err != nil {
				return nil, err
			}
			if s == nil {
				return nil, fmt.Errorf("the objects are not what they were when the rollout started: %s", text(problems[0]))
			}
			if _, err := r.sealer(o, s); err != nil {
				return nil, err
			}
			return w.publisher.Compile(ctx, s, w.policy, plan.Reference)
		}}
	moved, last, err := d.Step(ctx)
	if rollout.Ended(err) {
		return moved, "it has ended", nil
	}
	return moved, last.Reason, err
}

// start begins the first Rollout of the site that covers a node which would change, and
// returns its name; "" where none does. Nodes that no Rollout covers are left to a publish.
func (r *Reconciler) start(ctx context.Context, w *work, by publish.By, from *spec.Floor) (name string, covered map[string]bool, err error) {
	changed, covered := map[string]bool{}, map[string]bool{}
	for _, n := range w.plan.Nodes {
		if len(n.Changes) > 0 && n.Held == "" && w.site.Has(n.Name) {
			changed[n.Name] = true
		}
	}
	var first rollout.Order
	for _, one := range w.site.Maintenance().Rollouts {
		rule, divide, err := w.site.Rollout(one.Name)
		if err != nil {
			continue // it is for no node now: none of its own is kept from the others
		}
		for _, wave := range divide(func(node string) bool { return changed[node] }) {
			for _, node := range wave.Nodes {
				covered[node] = true
			}
			if first.Name == "" && len(wave.Nodes) > 0 {
				first = rollout.Order{Name: one.Name, Rule: rule.Rule, Divide: divide, Nodes: w.nodes, At: cluster.Day(r.Now()), From: from}
			}
		}
	}
	if first.Name == "" || len(covered) < len(changed) { // those that none covers come before
		return "", covered, nil
	}
	if r.Reports == nil {
		return "", covered, errNoReports
	}
	if w.site.HasLayer() {
		found, err := release.Find(ctx, w.publisher.Registry, layer)
		if err != nil {
			return "", covered, err
		}
		first.Reference = found.Index
	}
	_, _, err = rollout.Start(ctx, w.publisher, w.policy, by, first)
	return first.Name, covered, err
}
