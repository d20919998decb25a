// SPDX-License-Identifier: Apache-2.0

// Package object says of each object of caisson in a cluster whether it is valid: in its status, with what
// else is to be said of it there and an Event of what is new, and before that to an API server that asks.
//
// It decides nothing: package sites knows what is wrong and what is published. Nothing reads a status back
// but to say only once what is so.
package object

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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/report"
)

// GVK returns the group, version and kind of one of our kinds.
func GVK(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: cluster.Group, Version: cluster.Version, Kind: kind}
}

// Of returns one of our kinds by its name, without what is in it.
func Of(kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(GVK(kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

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

// Verdict is the status of one object.
type Verdict struct {
	Conditions []metav1.Condition // but for their times
	More       map[string]any     // of a Site
	Looked     bool               // of a Site: what is published was read

	object   *unstructured.Unstructured
	problems []any
}

// Set says whether a condition holds, and why.
func (v *Verdict) Set(kind string, ok bool, reason, format string, args ...any) {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	// There may be one already, of what was done and could not be written down.
	meta.SetStatusCondition(&v.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
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

// CannotPlan says of a Site why it is not known what publishing would change.
func (v *Verdict) CannotPlan(err error) {
	v.Set(Planned, false, "CannotPlan", "%s", Hinted(err))
	v.More["message"] = cut(Hinted(err))
}

// Hinted is an error's text with what to do about it.
func Hinted(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) && h.Hint() != "" {
		return err.Error() + ": " + h.Hint()
	}
	return err.Error()
}

// Key tells an object from others of its namespace.
type Key struct{ Kind, Name string }

// Verdicts says of each object whether it is valid. What is wrong with none of them is said
// of the Sites.
func Verdicts(all []*unstructured.Unstructured, problems []cluster.Problem, taken string) map[Key]*Verdict {
	out := map[Key]*Verdict{}
	for _, u := range all {
		out[Key{u.GetKind(), u.GetName()}] = &Verdict{object: u, problems: []any{}}
	}
	hasSite := slices.ContainsFunc(all, func(u *unstructured.Unstructured) bool { return u.GetKind() == cluster.Site })
	wrong := map[*Verdict][]string{}
	invalid := ""
	for _, p := range problems {
		var of []*Verdict
		if v := out[Key{p.Kind, p.Name}]; v != nil {
			of = append(of, v)
		} else {
			for k, v := range out {
				if k.Kind == cluster.Site || !hasSite { // what lacks a Site is of no use
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
				wrong[v] = append(wrong[v], Text(p))
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
			v.Set(Valid, false, "Invalid", "%s (and %d more, see status.problems)", list[0], len(list)-1)
		case len(list) == 1:
			v.Set(Valid, false, "Invalid", "%s", list[0])
		case k.Kind == cluster.Site && taken != "":
			v.Set(Valid, false, "FleetTaken", fleetTaken, taken)
		default:
			v.Set(Valid, true, "Valid", "it can be read as it is written")
		}
		if k.Kind == cluster.Site && invalid != "" {
			v.Set(Planned, false, "Invalid", "nothing is planned while an object is not valid: %s", invalid)
		}
	}
	return out
}

const fleetTaken = "the namespace %s has a Site of this name, and had it before: a fleet has one"

// Text is a problem in one line.
func Text(p cluster.Problem) string {
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
func (v *Verdict) status(now time.Time) map[string]any {
	was, _, _ := unstructured.NestedMap(v.object.Object, "status") // nil where it is anything else
	out := map[string]any{"observedGeneration": v.object.GetGeneration(), "problems": v.problems}
	before := written(v.object)
	list := slices.Clone(v.Conditions)
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
			out[name] = v.More[name] // null removes a field that has no value now
		}
		if !v.Looked {
			out["generation"] = was["generation"]
		}
		if next, ok := v.More["changes"].(map[string]any); ok {
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
func (v *Verdict) carried(was []metav1.Condition, now time.Time) (out []metav1.Condition) {
	for _, kind := range []string{Published, Progressing} {
		old := meta.FindStatusCondition(was, kind)
		if old == nil || meta.FindStatusCondition(v.Conditions, kind) != nil {
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

// Write puts verdicts into the objects that say something else, and tells once of what is
// new.
func Write(ctx context.Context, c client.Client, to events.EventRecorder, now time.Time, all map[Key]*Verdict) error {
	var failed []error
	for _, v := range all {
		next := v.status(now)
		was, _, _ := unstructured.NestedMap(v.object.Object, "status") // nil where it is anything else
		if same(was, next) {
			continue
		}
		data, _ := json.Marshal(map[string]any{"status": next}) // what JSON had, texts, numbers and times
		target := Of(v.object.GetKind(), v.object.GetNamespace(), v.object.GetName())
		err := c.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, data))
		if apierrors.IsNotFound(err) {
			continue // it went meanwhile
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("write the status of %s %s: %w", v.object.GetKind(), v.object.GetName(), err))
			continue
		}
		v.tell(to)
	}
	return errors.Join(failed...)
}

// tell makes an Event of each condition that is not as it was.
func (v *Verdict) tell(to events.EventRecorder) {
	was := written(v.object)
	for _, c := range v.Conditions {
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
		to.Eventf(v.object, nil, kind, c.Reason, c.Type, "%s", c.Message)
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

// Judgement holds the faults of an object before it is stored.
type Judgement struct {
	Wrong    []string // why its condition Valid would be False, and no other object mends that
	Warnings []string // what else would be said of it, or of others in its namespace
}

// maxWarnings bounds what is said of other objects.
const maxWarnings = 5

// mendable are the rules that another object may meet later: a folder of objects is applied
// in any order.
var mendable = map[string]bool{"no-site": true, "unknown-name": true}

// JudgementOf says of an object, of whose namespace these are the problems, what [Verdicts] would once it is stored.
func JudgementOf(u *unstructured.Unstructured, problems []cluster.Problem, taken string) (j Judgement) {
	for _, p := range problems {
		own := p.Kind == u.GetKind() && p.Name == u.GetName() || p.Rule == "second-site" && u.GetKind() == cluster.Site
		switch {
		case p.Severity == report.Note:
		case own && p.Severity == report.Error && !mendable[p.Rule]:
			j.Wrong = append(j.Wrong, cut(Text(p)))
		case own || p.Kind == "" && p.Severity == report.Error:
			j.Warnings = append(j.Warnings, cut(Text(p)))
		case p.Severity == report.Error && len(j.Warnings) < maxWarnings:
			j.Warnings = append(j.Warnings, cut(fmt.Sprintf("%s/%s: %s", p.Kind, p.Name, Text(p))))
		}
	}
	if len(j.Wrong) == 0 && taken != "" && u.GetKind() == cluster.Site {
		j.Wrong = append(j.Wrong, fmt.Sprintf(fleetTaken, taken))
	}
	return j
}
