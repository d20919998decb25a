// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Judgement is what is to be said of an object before it is stored.
type Judgement struct {
	Wrong    []string // why its condition Valid would be False, and no other object mends that
	Warnings []string // what else would be said of it, or of others in its namespace
}

// maxWarnings bounds what is said of other objects.
const maxWarnings = 5

// mendable are the rules that another object may meet later: a folder of objects is applied
// in any order.
var mendable = map[string]bool{"no-site": true, "unknown-name": true}

// Judge says what [Reconciler.Reconcile] would say of an object if it stood in its namespace
// now, by the same function. It asks no registry, and writes nothing.
func (r *Reconciler) Judge(ctx context.Context, u *unstructured.Unstructured) (j Judgement, err error) {
	o, err := r.read(ctx, u.GetNamespace())
	if err != nil {
		return j, err
	}
	o = o.with(u, metav1.NewTime(r.Now().Truncate(1e9)))
	_, problems, taken, err := r.parse(ctx, o)
	if err != nil {
		return j, err
	}
	for _, p := range problems {
		own := p.Kind == u.GetKind() && p.Name == u.GetName() || p.Rule == "second-site" && u.GetKind() == cluster.Site
		switch {
		case p.Severity == report.Note:
		case own && p.Severity == report.Error && !mendable[p.Rule]:
			j.Wrong = append(j.Wrong, cut(text(p)))
		case own || p.Kind == "" && p.Severity == report.Error:
			j.Warnings = append(j.Warnings, cut(text(p)))
		case p.Severity == report.Error && len(j.Warnings) < maxWarnings:
			j.Warnings = append(j.Warnings, cut(fmt.Sprintf("%s/%s: %s", p.Kind, p.Name, text(p))))
		}
	}
	if len(j.Wrong) == 0 && taken != "" && u.GetKind() == cluster.Site {
		j.Wrong = append(j.Wrong, fmt.Sprintf(fleetTaken, taken))
	}
	return j, nil
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
	sites := 0
	for _, one := range out.all {
		if one.GetKind() == cluster.Site {
			out.site = one
			sites++
		}
	}
	if sites > 1 {
		out.site = nil
	}
	return out
}
