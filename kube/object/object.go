// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Conditions of objects.
const (
	Valid       = "Valid"       // of every object: it can be read as what it is
	Planned     = "Planned"     // of a Site: what publishing would change is known
	Published   = "Published"   // of a Site: nodes are given what the objects say
	Progressing = "Progressing" // of a Site: a rollout, or somebody's publish, is under way
)

// maxProblems bounds what a status lists, and maxMessage how long a message is.
const (
	maxProblems = 20
	maxMessage  = 1000
)

// What is said of a condition of a Site that could not be looked at: the condition Planned, or
// Valid, has why.
const (
	notLookedAt = "NotLookedAt"
	lastKnown   = "not looked at, and nothing moves meanwhile; last known: "
)

// known is the message of a condition as it was when it was looked at last.
func known(old *metav1.Condition) string { return strings.TrimPrefix(old.Message, lastKnown) }

// verdict is the status of one object.
type verdict struct {
	object     *unstructured.Unstructured
	conditions []metav1.Condition // but for their times
	problems   []any
	more       map[string]any // of a Site
	looked     bool           // of a Site: what is published was read
}

func (v *verdict) set(kind string, ok bool, reason, format string, args ...any) {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	// There may be one already, of what was done and could not be written down.
	meta.SetStatusCondition(&v.conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
		Message: cut(fmt.Sprintf(format, args...))})
}

// written returns the conditions that an object has, none where somebody wrote nonsense.
func written(u *unstructured.Unstructured) []metav1.Condition {
	var o struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o) != nil {
		return nil
	}
	return o.Status.Conditions
}

func cut(text string) string {
	if len(text) > maxMessage {
		return strings.ToValidUTF8(text[:maxMessage], "") + " …"
	}
	return text
}

// hinted is an error's text with what to do about it.
func hinted(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) && h.Hint() != "" {
		return err.Error() + ": " + h.Hint()
	}
	return err.Error()
}

type key struct{ kind, name string }

// verdicts says of each object whether it is valid. What is wrong with none of them is said
// of the Sites.
func verdicts(o objects, problems []cluster.Problem, taken string) map[key]*verdict {
	out := map[key]*verdict{}
	for _, u := range o.all {
		out[key{u.GetKind(), u.GetName()}] = &verdict{object: u, problems: []any{}}
	}
	hasSite := slices.ContainsFunc(o.all, func(u *unstructured.Unstructured) bool { return u.GetKind() == cluster.Site })
	wrong := map[*verdict][]string{}
	invalid := ""
	for _, p := range problems {
		var of []*verdict
		if v := out[key{p.Kind, p.Name}]; v != nil {
			of = append(of, v)
		} else {
			for k, v := range out {
				if k.kind == cluster.Site || !hasSite { // what lacks a Site is of no use
					of = append(of, v)
				}
			}
		}
		for _, v := range of {
			if p.Severity != report.Note && len(v.problems) < maxProblems {
				v.problems = append(v.problems, map[string]any{"severity": p.Severity, "path": p.Path, "rule": p.Rule,
					"message": cut(p.Message), "hint": cut(p.Hint)})
			}
			if p.Severity == report.Error {
				wrong[v] = append(wrong[v], text(p))
				invalid = p.Kind + "/" + p.Name
			}
		}
		if p.Severity == report.Error && invalid == "" {
			invalid = "the namespace"
		}
	}
	for k, v := range out {
		switch list := wrong[v]; {
		case len(list) > 1:
			v.set(Valid, false, "Invalid", "%s (and %d more, see status.problems)", list[0], len(list)-1)
		case len(list) == 1:
			v.set(Valid, false, "Invalid", "%s", list[0])
		case k.kind == cluster.Site && taken != "":
			v.set(Valid, false, "FleetTaken", fleetTaken, taken)
		default:
			v.set(Valid, true, "Valid", "it can be read as it is written")
		}
		if k.kind == cluster.Site && invalid != "" {
			v.set(Planned, false, "Invalid", "nothing is planned while an object is not valid: %s", invalid)
		}
	}
	return out
}

const fleetTaken = "the namespace %s has a Site of this name, and had it before: a fleet has one"

func text(p cluster.Problem) string {
	out := p.Message
	if p.Path != "" {
		out = p.Path + ": " + out
	}
	if p.Hint != "" {
		out += ": " + p.Hint
	}
	return out
}

// status returns what an object's status is to be, given what it is.
func (v *verdict) status(now time.Time) map[string]any {
	was, _, _ := unstructured.NestedMap(v.object.Object, "status") // nil where it is anything else
	out := map[string]any{"observedGeneration": v.object.GetGeneration(), "problems": v.problems}
	before := written(v.object)
	list := slices.Clone(v.conditions)
	for i := range list {
		list[i].LastTransitionTime, list[i].ObservedGeneration = metav1.NewTime(now), v.object.GetGeneration()
		if old := meta.FindStatusCondition(before, list[i].Type); old != nil && old.Status == list[i].Status && !old.LastTransitionTime.IsZero() {
			list[i].LastTransitionTime = old.LastTransitionTime
		}
	}
	if v.object.GetKind() == cluster.Site {
		list = append(list, v.carried(before, now)...)
	}
	out["conditions"] = list
	if v.object.GetKind() == cluster.Site {
		for _, name := range []string{"generation", "plan", "message", "changes"} {
			out[name] = v.more[name] // null takes away what is not so any more
		}
		if !v.looked {
			out["generation"] = was["generation"]
		}
		if next, ok := v.more["changes"].(map[string]any); ok {
			classes, _ := was["changes"].(map[string]any) // nil where it is anything else
			for class := range classes {
				if _, still := next[class]; !still {
					next[class] = nil
				}
			}
		}
	}
	return out
}

// carried are the conditions of a Site that were not looked at: they say what was known, and
// are not news when they are looked at again.
func (v *verdict) carried(was []metav1.Condition, now time.Time) (out []metav1.Condition) {
	for _, kind := range []string{Published, Progressing} {
		old := meta.FindStatusCondition(was, kind)
		if old == nil || meta.FindStatusCondition(v.conditions, kind) != nil {
			continue
		}
		next := metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: notLookedAt, Message: cut(lastKnown + known(old)),
			LastTransitionTime: metav1.NewTime(now), ObservedGeneration: old.ObservedGeneration}
		if old.Status == next.Status && !old.LastTransitionTime.IsZero() {
			next.LastTransitionTime = old.LastTransitionTime
		}
		out = append(out, next)
	}
	return out
}

// write puts verdicts into the objects that say something else, and tells once of what is
// new.
func (r *Reconciler) write(ctx context.Context, o objects, all map[key]*verdict) error {
	var failed []error
	for _, v := range all {
		next := v.status(r.Now())
		was, _, _ := unstructured.NestedMap(v.object.Object, "status") // nil where it is anything else
		if same(was, next) {
			continue
		}
		data, _ := json.Marshal(map[string]any{"status": next}) // what JSON had, texts, numbers and times
		target := Object(v.object.GetKind(), o.namespace, v.object.GetName())
		err := r.Client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, data))
		if apierrors.IsNotFound(err) {
			continue // it went meanwhile
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("write the status of %s %s: %w", v.object.GetKind(), v.object.GetName(), err))
			continue
		}
		r.tell(v)
	}
	return errors.Join(failed...)
}

// tell makes an Event of each condition that is not as it was.
func (r *Reconciler) tell(v *verdict) {
	was := written(v.object)
	for _, c := range v.conditions {
		switch old := meta.FindStatusCondition(was, c.Type); {
		case old == nil && c.Status == metav1.ConditionTrue && c.Type != Published:
			continue
		case old != nil && old.Reason == notLookedAt && known(old) == c.Message:
			continue // as it was before it could not be looked at
		case old != nil && old.Reason == c.Reason && old.Message == c.Message:
			continue
		}
		kind := corev1.EventTypeNormal
		if c.Status == metav1.ConditionFalse && c.Type == Valid {
			kind = corev1.EventTypeWarning
		}
		r.Events.Eventf(v.object, nil, kind, c.Reason, c.Type, "%s", c.Message)
	}
}

// normal is a status as JSON has it.
func normal(status map[string]any) (out map[string]any) {
	text, _ := json.Marshal(status) // what JSON had, texts, numbers and times
	_ = json.Unmarshal(text, &out)  // it was just written
	return out
}

// same reports whether a status says already what it is to say.
func same(was, next map[string]any) bool {
	is, to := normal(was), normal(next)
	maps.DeleteFunc(to, func(name string, value any) bool { return reflect.DeepEqual(is[name], value) })
	return len(to) == 0
}
