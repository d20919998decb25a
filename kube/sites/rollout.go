// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	fleetreport "github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/kube/object"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// step is how soon a namespace is looked at again whose rollout is under way.
const step = 30 * time.Second

// errNoReports is said where a Rollout covers nodes, and nobody knows how they are.
var errNoReports = errors.New("a Rollout covers nodes that would change, and caisson-kube has no --fleet for the " +
	"namespace, whose reports let a wave begin")

// underWay returns the rollout that moves nodes now, "" where none does.
func underWay(fleet *published.Fleet) string {
	rollouts := fleet.Rollouts()
	for _, name := range slices.Sorted(maps.Keys(rollouts)) {
		if rollouts[name].Phase == spec.RolloutRunning {
			return name
		}
	}
	return ""
}

// move takes the next step of a rollout, if there is one now, and says what it waits for. The
// plan was signed when it started: what objects say since comes after it.
func (r *Reconciler) move(ctx context.Context, o objects, w *work, name string) (moved bool, waits string, err error) {
	if r.Reports == nil {
		return false, "", errNoReports
	}
	d := &rollout.Driver{Publisher: *w.publisher, Policy: w.policy,
		By: publish.By{Author: "caisson-kube", Reason: "the next step of rollout " + name}, Name: name, Say: w.publisher.Say,
		Now: r.time,
		Reports: func(ctx context.Context, asked fleetreport.Asked) (map[string]fleetreport.Standing, error) {
			return r.Reports(ctx, o.namespace, asked)
		},
		Compile: func(ctx context.Context, plan *spec.RolloutPlan) ([]publish.Node, error) {
			s, problems, err := r.parseAt(ctx, time.Unix(plan.At, 0).UTC(), o)
			if err != nil {
				return nil, err
			}
			if s == nil {
				return nil, fmt.Errorf("the objects are not what they were when the rollout started: %s", object.Text(problems[0]))
			}
			if _, err := r.sealer(o, s); err != nil {
				return nil, err
			}
			return w.publisher.Compile(ctx, s, w.policy, plan.Reference)
		}}
	if r.Slots != nil {
		d.Slots = func(ctx context.Context) (map[string]string, error) { return r.Slots(ctx, o.namespace) }
	}
	if asked := r.Prometheus[o.namespace]; asked != nil {
		d.Measure = asked.Measure
	}
	moved, last, err := d.Step(ctx)
	if errors.Is(err, rollout.ErrEnded) {
		return moved, "it has ended", nil
	}
	return moved, last.Reason, err
}

// start begins the first Rollout of the site that covers a node which would change, and
// returns its name; "" where none does. Nodes that no Rollout covers are left to a publish.
func (r *Reconciler) start(ctx context.Context, w *work, by publish.By, from *spec.Floor) (name string,
	covered map[string]bool, err error) {
	changed, covered := map[string]bool{}, map[string]bool{}
	for _, n := range w.plan.Nodes {
		if len(n.Changes) > 0 && n.Held == "" && w.site.Fleet().Has(n.Name) {
			changed[n.Name] = true
		}
	}
	var first rollout.Order
	for _, one := range w.site.Rollouts() {
		rule, divide, err := w.site.Rollout(one.Name)
		if err != nil {
			continue // it is for no node now: none of its own is kept from the others
		}
		for _, wave := range divide(func(node string) bool { return changed[node] }) {
			for _, node := range wave.Nodes {
				covered[node] = true
			}
			if first.Name == "" && len(wave.Nodes) > 0 {
				first = rollout.Order{Name: one.Name, Rule: rule.Rule, Divide: divide, Budget: rule.Budget(w.site.Nodes()),
					Nodes: w.nodes, At: cluster.Day(r.Now()), From: from}
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

// Judge says what [Reconciler.Reconcile] would say of an object if it stood in its namespace
// now, by the same function. It asks no registry, and writes nothing.
func (r *Reconciler) Judge(ctx context.Context, u *unstructured.Unstructured) (j object.Judgement, err error) {
	o, err := r.read(ctx, u.GetNamespace())
	if err != nil {
		return j, err
	}
	_, problems, taken, err := r.parse(ctx, o.with(u, metav1.NewTime(r.Now().Truncate(1e9))))
	if err != nil {
		return j, err
	}
	return object.JudgementOf(u, problems, taken), nil
}

// with returns the objects of a namespace as they are when one more is stored, or another in
// place of the one that was.
func (o objects) with(u *unstructured.Unstructured, now metav1.Time) objects {
	if created := u.GetCreationTimestamp(); created.IsZero() {
		u = u.DeepCopy()
		u.SetCreationTimestamp(now)
	}
	out := objects{namespace: o.namespace, all: slices.Clone(o.all)}
	same := func(one *unstructured.Unstructured) bool {
		return one.GetKind() == u.GetKind() && one.GetName() == u.GetName()
	}
	if i := slices.IndexFunc(out.all, same); i >= 0 {
		out.all[i] = u
	} else {
		out.all = append(out.all, u)
	}
	out.site = onlySite(out.all)
	return out
}
