// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/kube/object"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// Configured is the condition of a Node that is a node of the fleet.
const Configured corev1.NodeConditionType = "caisson.dev/Configured"

// Source says how the nodes of a fleet are.
type Source interface {
	Nodes(ctx context.Context) ([]view.Line, error)
	Changes(ctx context.Context, again time.Duration) <-chan struct{}
	Operations(ctx context.Context, node string) ([]spec.OperationStatus, error)
}

// Mirror shows a fleet's nodes as objects: a FleetNode for each, in the cluster or not, and on a Node of
// the same name the condition caisson.dev/Configured.
//
// It copies what the fleet's service says, so many objects a second, and only what differs.
// Nothing reads these objects to decide anything.
type Mirror struct {
	Client     client.Client // reads Nodes from memory
	Reader     client.Reader // reads FleetNodes now and then: they need not be kept
	Events     events.EventRecorder
	Source     Source
	Namespace  string
	Pace       *rate.Limiter // of requests that write
	Settle     time.Duration // between two looks
	Every      time.Duration // looks after this long, whatever changes
	Check      time.Duration // reads after this long again which FleetNodes there are, and how
	Now        func() time.Time
	Conditions bool                         // Nodes get the condition [Configured]
	Wrote      func(namespace, kind string) // counts what was written

	seen    map[string]cluster.FleetNodeStatus // FleetNodes as they are, by name; nil before the first look
	checked time.Time                          // when they were read
	nodes   map[string]told                    // what Nodes were told, by name
}

// told is what a Node was told, and which one of all that it was: memory may still have it for
// a moment.
type told struct{ says, version string }

// NeedLeaderElection says that one instance writes.
func (*Mirror) NeedLeaderElection() bool { return true }

// Start copies until ctx ends.
func (m *Mirror) Start(ctx context.Context) error {
	Follow(ctx, m.Source.Changes(ctx, m.Settle), m.Settle, m.Every, func() {
		if err := m.Copy(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "copy the fleet's nodes", "namespace", m.Namespace)
		}
	})
	return nil
}

// Copy brings the objects to what the service says now.
func (m *Mirror) Copy(ctx context.Context) error {
	lines, err := m.Source.Nodes(ctx)
	if err != nil {
		return err
	}
	if m.seen == nil || m.Now().Sub(m.checked) >= m.Check { // somebody may have written or deleted some
		if err := m.look(ctx); err != nil {
			return err
		}
	}
	members, err := m.members(ctx)
	if err != nil {
		return err
	}
	var failed []error
	gone := sets.KeySet(m.seen)
	for _, l := range lines {
		if len(validation.IsDNS1123Subdomain(l.Name)) > 0 {
			continue // no object can be called so
		}
		delete(gone, l.Name)
		l.Condition = view.Condition(short(string(l.Condition)))
		for _, text := range []*string{&l.Why, &l.Version, &l.Agent, &l.Tracking, &l.Sync, &l.Health, &l.Activity} {
			*text = short(*text)
		}
		if err := errors.Join(m.fleetNode(ctx, l), m.node(ctx, members[l.Name], l)); err != nil {
			failed = append(failed, err)
			if ctx.Err() != nil || len(failed) > 10 {
				return errors.Join(failed...)
			}
		}
	}
	for name := range gone {
		failed = append(failed, m.remove(ctx, name))
	}
	return errors.Join(failed...)
}

// look reads the objects that are there.
func (m *Mirror) look(ctx context.Context) error {
	var l unstructured.UnstructuredList
	l.SetGroupVersionKind(object.GVK(cluster.FleetNode + "List"))
	if err := m.Reader.List(ctx, &l, client.InNamespace(m.Namespace)); err != nil {
		return fmt.Errorf("list FleetNodes: %w", err)
	}
	m.seen, m.checked = map[string]cluster.FleetNodeStatus{}, m.Now()
	for _, u := range l.Items {
		var s cluster.FleetNodeStatus
		was, _, _ := unstructured.NestedMap(u.Object, "status") // nil where somebody wrote nonsense
		if runtime.DefaultUnstructuredConverter.FromUnstructured(was, &s) != nil {
			s = cluster.FleetNodeStatus{} // it is written again
		}
		m.seen[u.GetName()] = s
	}
	return nil
}

// fleetNode writes one FleetNode where it is not as it should be.
func (m *Mirror) fleetNode(ctx context.Context, l view.Line) error {
	next := cluster.FleetNodeStatus{Condition: string(l.Condition), Trouble: view.KindOf(l.Condition).Trouble,
		Message: l.Why, Generation: int64(l.Generation), Published: int64(l.Published),
		Layer: l.Version, Agent: l.Agent, Tracking: l.Tracking, Sync: l.Sync, Health: l.Health, Activity: l.Activity}
	was, there := m.seen[l.Name]
	if next.Since = was.Since; was.Condition != next.Condition || next.Since == "" {
		next.Since = m.Now().UTC().Format(time.RFC3339)
	}
	ended, failed := m.ended(ctx, l, was, there, &next)
	if there && was == next {
		return failed
	}
	if err := m.Pace.Wait(ctx); err != nil {
		return err
	}
	u := object.Of(cluster.FleetNode, m.Namespace, l.Name)
	data, _ := json.Marshal(map[string]any{"status": next}) // texts and numbers
	var err error
	if there {
		err = m.Client.Patch(ctx, u, client.RawPatch(types.MergePatchType, data))
		if apierrors.IsNotFound(err) { // somebody deleted it
			there = false
		}
	}
	if !there {
		if u.Object["status"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&next); err != nil {
			return err
		}
		u.SetResourceVersion("")
		err = m.Client.Create(ctx, u)
	}
	if err != nil {
		return fmt.Errorf("write FleetNode %s: %w", l.Name, err)
	}
	m.seen[l.Name] = next
	m.Wrote(m.Namespace, cluster.FleetNode)
	return errors.Join(failed, m.tell(ctx, u, ended))
}

func (m *Mirror) remove(ctx context.Context, name string) error {
	if err := m.Pace.Wait(ctx); err != nil {
		return err
	}
	if err := m.Client.Delete(ctx, object.Of(cluster.FleetNode, m.Namespace, name)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove FleetNode %s: %w", name, err)
	}
	delete(m.seen, name)
	return nil
}

// verdict is the condition of a Node for a condition of the fleet.
func verdict(c view.Condition) corev1.ConditionStatus {
	switch c {
	case view.Fine, view.Held, view.Paused:
		return corev1.ConditionTrue
	case view.Silent, view.Never, view.Retired, view.OtherKey, view.Unreachable:
		return corev1.ConditionUnknown // what it says, or does not say, is not news of it
	}
	return corev1.ConditionFalse
}

// members are the Nodes of the cluster. They are the cache's, and only read.
func (m *Mirror) members(ctx context.Context) (map[string]*corev1.Node, error) {
	if !m.Conditions {
		return nil, nil
	}
	var l corev1.NodeList
	if err := m.Client.List(ctx, &l, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	out := make(map[string]*corev1.Node, len(l.Items))
	for i := range l.Items {
		out[l.Items[i].Name] = &l.Items[i]
	}
	return out, nil
}

// node tells a Node of the same name; nil where the cluster has none. Who makes the Node
// again, or writes another condition, has it told again; only what changed is an Event.
func (m *Mirror) node(ctx context.Context, n *corev1.Node, l view.Line) error {
	why := cmp.Or(l.Why, view.KindOf(l.Condition).Says) // an empty message would leave the one before
	says := string(l.Condition) + ": " + why
	was := m.nodes[l.Name]
	if n == nil || was == (told{says, n.ResourceVersion}) {
		return nil
	}
	now := metav1.NewTime(m.Now().UTC().Truncate(time.Second))
	next := corev1.NodeCondition{Type: Configured, Status: verdict(l.Condition), Reason: reason(l.Condition),
		Message: why, LastHeartbeatTime: now, LastTransitionTime: now}
	for _, c := range n.Status.Conditions {
		if c.Type != Configured {
			continue
		}
		if c.Status == next.Status && c.Reason == next.Reason && c.Message == next.Message {
			m.note(l.Name, told{says, ""})
			return nil
		}
		if c.Status == next.Status {
			next.LastTransitionTime = c.LastTransitionTime
		}
	}
	if err := m.Pace.Wait(ctx); err != nil {
		return err
	}
	data, _ := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{next}}}) // texts and times
	if err := m.Client.Status().Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.Name}},
		client.RawPatch(types.StrategicMergePatchType, data)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the condition of Node %s: %w", l.Name, err)
	}
	m.note(l.Name, told{says, n.ResourceVersion})
	m.Wrote(m.Namespace, "Node")
	if was.says == says {
		return nil
	}
	kind := corev1.EventTypeNormal
	if view.KindOf(l.Condition).Trouble {
		kind = corev1.EventTypeWarning
	}
	m.Events.Eventf(n, nil, kind, next.Reason, "Configured", "%s", short(says))
	return nil
}

func (m *Mirror) note(node string, t told) {
	if m.nodes == nil {
		m.nodes = map[string]told{}
	}
	m.nodes[node] = t
}

// reason is a condition in the spelling of Kubernetes.
func reason(c view.Condition) (out string) {
	for word := range strings.SplitSeq(string(c), "-") {
		out += strings.ToUpper(word[:min(1, len(word))]) + word[min(1, len(word)):]
	}
	return out
}

// maxNote is the longest text that is taken over: an Event takes 1024 bytes.
const maxNote = 900

// short is a text of the service, which may say anything.
func short(text string) string {
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote], "") + " …"
	}
	return text
}

// ended asks which operations of a node ended since that was written down last, and notes
// the last of them. What ended before the node had an object is noted, and not told.
func (m *Mirror) ended(ctx context.Context, l view.Line, was cluster.FleetNodeStatus, there bool,
	next *cluster.FleetNodeStatus) ([]spec.OperationStatus, error) {
	next.Operation, next.Ended = was.Operation, was.Ended
	before, _ := time.Parse(time.RFC3339Nano, was.Ended) // zero where none had, or somebody wrote nonsense
	if !l.Ended.After(before) {
		return nil, nil
	}
	if err := m.Pace.Wait(ctx); err != nil {
		return nil, err
	}
	all, err := m.Source.Operations(ctx, l.Name)
	if err != nil {
		return nil, fmt.Errorf("ask what the operations of %s came to: %w", l.Name, err)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(o spec.OperationStatus) bool {
		at, _ := o.Ended()
		return !at.After(before)
	})
	slices.SortFunc(all, func(a, b spec.OperationStatus) int {
		x, _ := a.Ended()
		y, _ := b.Ended()
		return cmp.Or(x.Compare(y), cmp.Compare(a.Name, b.Name))
	})
	if len(all) == 0 { // it reported again meanwhile
		return nil, nil
	}
	last := all[len(all)-1]
	at, _ := last.Ended()
	next.Operation, next.Ended = note(last), at.UTC().Format(time.RFC3339Nano)
	if !there {
		return nil, nil
	}
	return all, nil
}

// note says what an operation came to.
func note(o spec.OperationStatus) string {
	says := "done"
	if _, failed := o.Ended(); failed {
		says = "failed"
	}
	if o.Detail != "" {
		says += ": " + strings.ReplaceAll(strings.TrimSpace(o.Detail), "\n", "; ")
	}
	return short(o.Name + " " + says)
}

// tell makes Events of operations that ended: of the FleetNode, and of the NodeMaintenance
// that has the operation.
func (m *Mirror) tell(ctx context.Context, node *unstructured.Unstructured, ended []spec.OperationStatus) error {
	for _, o := range ended {
		kind, reason := corev1.EventTypeNormal, "OperationDone"
		if _, failed := o.Ended(); failed {
			kind, reason = corev1.EventTypeWarning, "OperationFailed"
		}
		if err := m.Pace.Wait(ctx); err != nil {
			return err
		}
		m.Events.Eventf(node, nil, kind, reason, "Operate", "%s", note(o))
		name, _, has := strings.Cut(o.Name, "/")
		if !has { // of the layer, not of a NodeMaintenance
			continue
		}
		u := object.Of(cluster.NodeMaintenance, m.Namespace, name)
		err := m.Client.Get(ctx, client.ObjectKeyFromObject(u), u)
		if apierrors.IsNotFound(err) {
			continue // it is not kept as an object, or not any more
		}
		if err != nil {
			return fmt.Errorf("read NodeMaintenance %s: %w", name, err)
		}
		if err := m.Pace.Wait(ctx); err != nil {
			return err
		}
		m.Events.Eventf(u, node, kind, reason, "Operate", "on %s: %s", node.GetName(), note(o))
	}
	return nil
}
