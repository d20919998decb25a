// SPDX-License-Identifier: Apache-2.0

// Package drain takes the work off a Node before it starts over, and lets it come back.
//
// A node of the fleet that asks its service for a slot of a group whose nodes are drained
// waits for us: we cordon its Node, evict its pods by the eviction API as 'kubectl drain'
// does, and tell the service. When the slot is given back we uncordon what we cordoned,
// once the Node is ready. What we did to a Node is written on it with the fleet for which
// it was done, so that another instance goes on where one was killed; a cordon of somebody
// else and what was done for another fleet are left alone.
//
// The service's word has bounds of our own: a Node is drained that is published, in a group that
// its signed overlay names, that is not of the control plane, and so many of a group at a time.
package drain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	kubectl "k8s.io/kubectl/pkg/drain"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/caisson-os/caisson/kube/service"
)

// Slots is where nodes ask for leave. MAC authenticates a text by a secret that no Node has; it is
// "" where there is none.
type Slots interface {
	Slots(ctx context.Context) ([]service.Slot, error)
	Drained(ctx context.Context, s service.Slot, what string) error
	Changes(ctx context.Context, again time.Duration) <-chan struct{}
	MAC(text string) (string, error)
}

// Index returns the groups of slots of those of some nodes that are published, by what is signed
// for them. With an error it returns those that could be read.
type Index func(ctx context.Context, nodes []string) (map[string][]string, error)

// Policy is how pods are treated, as the options of 'kubectl drain' have it.
type Policy struct {
	Timeout        time.Duration // for all pods of a Node; then it is given up, and tried again later
	Grace          int           // seconds that each pod gets; below 0 what the pod says
	DeleteEmptyDir bool          // pods with emptyDir volumes go, and what is in these
	Force          bool          // pods that no controller makes again go, too
}

// Drainer drains the Nodes of one fleet.
type Drainer struct {
	Client    kubernetes.Interface
	Nodes     client.Reader // Nodes as they are in memory: looking at them asks nobody
	Events    events.EventRecorder
	Slots     Slots
	Index     Index
	Most      int    // Nodes of a group that are drained, or not back yet, at a time
	Namespace string // of the fleet
	Alone     bool   // no other fleet's Nodes are drained: a mark that names no fleet is ours
	Policy    Policy
	Every     time.Duration // looks after this long, whatever changes
	Again     time.Duration // tries a Node again after this long that could not be drained
	Patience  time.Duration // for a Node to be ready; then an Event says that others wait for it
	Seen      func(error)   // counts a Node that was drained, or could not be; nil: nobody counts

	work     work
	recorded map[string]string // Events about waits that stood at the last look, see waitEvents
}

// work holds the tasks of a Drainer beside its looks.
type work struct {
	mu      sync.Mutex
	at      map[string]*drainage // Nodes that are being drained, by name
	waiting map[string]time.Time // Nodes that could not be, or must not be, and when they are tried again
	had     map[string]bool      // slots that Nodes had, by node and group; nil before the first look
	wg      sync.WaitGroup
}

// drainage is one Node being drained.
type drainage struct {
	slot service.Slot
	stop context.CancelCauseFunc
}

// errOver ends a drain whose slot was given up: nobody waits for it any more.
var errOver = errors.New("its slot was given up")

// NeedLeaderElection says that one instance drains.
func (*Drainer) NeedLeaderElection() bool { return true }

// Start works until ctx ends. A drain that it interrupts is gone on with by the next instance.
func (d *Drainer) Start(ctx context.Context) error {
	defer d.work.wg.Wait()
	service.Follow(ctx, d.Slots.Changes(ctx, d.Every), Pause, d.Every, func() {
		if err := d.Look(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "drain")
		}
	})
	return nil
}

// Bounds of a look, whatever a service says.
const (
	Pause    = time.Second // between two looks
	MaxAsked = 64          // nodes whose overlays are read at a look
)

// Look begins what is asked for, and ends what is over.
func (d *Drainer) Look(ctx context.Context) error {
	slots, err := d.Slots.Slots(ctx)
	if err != nil {
		return err
	}
	var list corev1.NodeList
	if err := d.Nodes.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	nodes := map[string]*corev1.Node{}
	for i := range list.Items {
		nodes[list.Items[i].Name] = &list.Items[i]
	}
	held := map[string]service.Slot{} // by node and group
	for _, s := range slots {
		held[s.Node+" "+s.Group] = s
	}
	d.endOthers(held)
	var failed []error
	waits := waitEvents{d: d, now: map[string]string{}}
	defer func() { d.recorded = waits.now }() // what is over and comes again is recorded again
	back := map[string][]*corev1.Node{}       // by group, Nodes that gave their slot back and are not ready yet
	under := map[string]map[string]bool{}     // by group, the names of Nodes that are drained, or not back yet
	if err := d.remember(nodes, held, under); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[name]
		m, marked := markOf(n)
		slot, has := held[n.Name+" "+m.Group]
		if !marked || !d.owns(m, has) {
			continue
		}
		had := d.work.had[n.Name+" "+m.Group] // else it was not we who wrote that, as a kubelet may
		if had {
			count(under, m.Group, n.Name)
		}
		if has { // the service lets it act
			if !slot.Draining {
				waits.slotHeld(n, m.Group)
			}
			continue
		}
		if d.busy(n.Name) { // it was stopped, and gives the Node back itself
			back[m.Group] = append(back[m.Group], n)
			continue
		}
		if !ready(n) { // the next one is not begun while this one is not ready
			if had {
				back[m.Group] = append(back[m.Group], n)
				waits.slotReturned(n, m.Group)
			}
			continue
		}
		if err := d.release(ctx, n.Name, "its slot was given back"); err != nil {
			back[m.Group] = append(back[m.Group], n)
			failed = append(failed, err)
		}
	}
	var asking []service.Slot
	for _, s := range slots {
		if !s.Draining || d.leave(s.Node) {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(back[s.Group]), func(other *corev1.Node) bool { return other.Name == s.Node })
		switch n := nodes[s.Node]; {
		case len(others) > 0 && n != nil:
			waits.notDrained(n, others, s.Group)
		case len(others) == 0 && d.room(under, s) && len(asking) < MaxAsked:
			asking = append(asking, s)
		}
	}
	failed = append(failed, d.beginAsked(ctx, nodes, asking, under))
	return errors.Join(failed...)
}

// room reports whether a Node may be drained beside those of its group that are.
func (d *Drainer) room(under map[string]map[string]bool, s service.Slot) bool {
	return under[s.Group][s.Node] || len(under[s.Group]) < d.Most
}

// beginAsked begins the drains that slots ask for, as far as what is published has their groups.
func (d *Drainer) beginAsked(ctx context.Context, nodes map[string]*corev1.Node, asking []service.Slot,
	under map[string]map[string]bool) error {
	var failed []error
	groups, err := d.groups(ctx, asking)
	if err != nil {
		failed = append(failed, fmt.Errorf("read what is published: %w", err))
	}
	for _, s := range asking {
		own, published := groups[s.Node]
		if !slices.Contains(own, s.Group) {
			if published || err == nil { // else it may be published, and is asked for again
				failed = append(failed, d.refuse(s.Node, errors.New("it is not published with slots of "+strconv.Quote(s.Group))))
			}
			continue
		}
		n, err := d.find(ctx, nodes, s.Node)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if n == nil {
			failed = append(failed, d.Slots.Drained(ctx, s, "it is not a Node of this cluster"))
			continue
		}
		if err := d.others(n); err != nil {
			failed = append(failed, fmt.Errorf("drain Node %s: %w", n.Name, err))
			continue
		}
		if err := controlPlane(n); err != nil {
			failed = append(failed, d.refuse(n.Name, err))
			continue
		}
		if d.room(under, s) { // else it has its turn when another is back
			count(under, s.Group, n.Name)
			d.begin(ctx, n, s)
		}
	}
	return errors.Join(failed...)
}

// find returns a Node, nil where the cluster has none: memory may not know a new one yet, so
// the API server has the last word before a machine waits for nobody.
func (d *Drainer) find(ctx context.Context, known map[string]*corev1.Node, name string) (*corev1.Node, error) {
	if n := known[name]; n != nil {
		return n, nil
	}
	n, err := d.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Node %s: %w", name, err)
	}
	return n, nil
}

// endOthers stops the drains whose slots are gone: a window closed, or somebody released it.
func (d *Drainer) endOthers(held map[string]service.Slot) {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	for name, one := range d.work.at {
		if _, has := held[name+" "+one.slot.Group]; !has {
			one.stop(errOver)
		}
	}
}

// busy reports whether a Node is being drained.
func (d *Drainer) busy(name string) bool {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	return d.work.at[name] != nil
}

// begin drains a Node.
func (d *Drainer) begin(ctx context.Context, n *corev1.Node, s service.Slot) {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	own, stop := context.WithCancelCause(ctx)
	d.work.at[n.Name] = &drainage{s, stop}
	d.work.wg.Go(func() {
		defer stop(nil)
		err := d.drain(own, n, s)
		over := err != nil && errors.Is(context.Cause(own), errOver)
		switch {
		case err == nil, ctx.Err() != nil: // a process that ends leaves the Node to the next one
		case over:
			err = d.giveBack(ctx, n.Name, errOver.Error()+" before it was drained")
		default:
			text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
			if len(text) > 900 { // more than an Event takes
				text = strings.ToValidUTF8(text[:900], "") + " …"
			}
			d.Events.Eventf(n, nil, corev1.EventTypeWarning, "DrainFailed", "Drain", "%s", text)
			err = errors.Join(err, d.giveBack(ctx, n.Name, "it could not be drained"))
		}
		if d.Seen != nil && ctx.Err() == nil && !over {
			d.Seen(err)
		}
		d.work.mu.Lock()
		defer d.work.mu.Unlock()
		delete(d.work.at, n.Name)
		delete(d.work.waiting, n.Name)
		if err != nil && !over {
			d.work.waiting[n.Name] = time.Now().Add(d.Again)
		}
		if err != nil {
			log.FromContext(ctx).Error(err, "drain", "node", n.Name)
		}
	})
}

// askAgain is how long a pod whose budget refuses is left alone, as by 'kubectl drain'. A helper
// that is not given one asks without a pause.
const askAgain = 5 * time.Second

// drain takes the work off a Node.
func (d *Drainer) drain(ctx context.Context, n *corev1.Node, s service.Slot) error {
	ctx, cancel := context.WithTimeout(ctx, d.Policy.Timeout+time.Minute)
	defer cancel()
	begun, err := d.mark(ctx, n.Name, s.Group)
	if err != nil {
		return err
	}
	if begun {
		d.Events.Eventf(n, nil, corev1.EventTypeNormal, "Draining", "Drain", "it asked for a slot of %s", s.Group)
	}
	var evicted atomic.Int64
	h := &kubectl.Helper{Ctx: ctx, Client: d.Client, Force: d.Policy.Force, GracePeriodSeconds: d.Policy.Grace,
		IgnoreAllDaemonSets: true, DeleteEmptyDirData: d.Policy.DeleteEmptyDir,
		Timeout: d.Policy.Timeout, EvictErrorRetryDelay: askAgain, Out: io.Discard, ErrOut: io.Discard,
		OnPodDeletionOrEvictionFinished: func(_ *corev1.Pod, _ bool, err error) {
			if err == nil {
				evicted.Add(1)
			}
		}}
	if readiness(n).Status == corev1.ConditionUnknown { // its kubelet is silent, maybe for good
		h.SkipWaitForDeleteTimeoutSeconds = deadGrace
	}
	pods, errs := h.GetPodsForDeletion(n.Name)
	if err := refused(errs); err != nil {
		return err
	}
	h.Client = newByUID(d.Client, pods.Pods())
	since := time.Now()
	if err := h.DeleteOrEvictPods(pods.Pods()); err != nil {
		return d.explain(ctx, since, pods.Pods(), err)
	}
	if err := d.Slots.Drained(ctx, s, fmt.Sprintf("%d pods were evicted", evicted.Load())); err != nil {
		return err
	}
	d.Events.Eventf(n, nil, corev1.EventTypeNormal, "Drained", "Drain", "%d pods were evicted for a slot of %s", evicted.Load(), s.Group)
	return nil
}

// giveBack undoes what was done to a Node that is not drained, also where the manager ends.
func (d *Drainer) giveBack(ctx context.Context, name, why string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return d.release(ctx, name, why)
}

// release uncordons a Node that we cordoned, and takes the mark off.
func (d *Drainer) release(ctx context.Context, name, why string) error {
	n, changed, err := d.change(ctx, name, func(n *corev1.Node) (map[string]any, error) {
		m, marked := markOf(n)
		if !marked || !d.owns(m, true) {
			return nil, nil // memory is behind: it was given back
		}
		patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{Annotation: nil}, "resourceVersion": n.ResourceVersion}}
		if m.Cordoned {
			patch["spec"] = map[string]any{"unschedulable": false}
		}
		return patch, nil
	})
	if err != nil {
		return fmt.Errorf("uncordon Node %s: %w", name, err)
	}
	if changed {
		d.Events.Eventf(n, nil, corev1.EventTypeNormal, "Released", "Drain", "%s", why)
	}
	return nil
}

// mark writes down what is done before it is done, in one request, and reports whether it was
// begun now.
func (d *Drainer) mark(ctx context.Context, name, group string) (begun bool, err error) {
	_, _, err = d.change(ctx, name, func(n *corev1.Node) (map[string]any, error) {
		m, marked := markOf(n)
		begun = !marked
		if err := d.others(n); err != nil {
			return nil, err
		}
		if ours, err := d.proven(n, m); ours || err != nil {
			return nil, err
		}
		next, err := d.seal(n, mark{Namespace: d.Namespace, Group: group, Cordoned: !n.Spec.Unschedulable || m.Cordoned,
			Since: time.Now().UTC().Truncate(time.Second)})
		if err != nil {
			return nil, err
		}
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{Annotation: next.text()},
			"resourceVersion": n.ResourceVersion}, "spec": map[string]any{"unschedulable": true}}, nil
	})
	if err != nil {
		return false, fmt.Errorf("cordon Node %s: %w", name, err)
	}
	return begun, nil
}

// change reads a Node as it is, and writes what next makes of it unless somebody wrote
// meanwhile; nil changes nothing.
func (d *Drainer) change(ctx context.Context, name string,
	next func(*corev1.Node) (map[string]any, error)) (n *corev1.Node, changed bool, err error) {
	nodes := d.Client.CoreV1().Nodes()
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if n, err = nodes.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		patch, err := next(n)
		if changed = err == nil && patch != nil; !changed {
			return err
		}
		data, _ := json.Marshal(patch) // texts and flags
		_, err = nodes.Patch(ctx, name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
		return err
	})
	return n, changed, err
}

// readiness is the condition of a Node that its kubelet keeps, the zero value where there is none.
func readiness(n *corev1.Node) (ready corev1.NodeCondition) {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return ready
}

func ready(n *corev1.Node) bool { return readiness(n).Status == corev1.ConditionTrue }
