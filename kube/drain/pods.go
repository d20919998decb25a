// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/policy/v1"

	"github.com/caisson-os/caisson/kube/service"
)

// byUID evicts pods that were found on a Node, and none that was made again under the name of
// one, as on another Node: the library asks by the name alone.
type byUID struct {
	kubernetes.Interface
	uids map[types.NamespacedName]types.UID
}

func newByUID(c kubernetes.Interface, pods []corev1.Pod) byUID {
	b := byUID{c, map[types.NamespacedName]types.UID{}}
	for _, p := range pods {
		b.uids[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p.UID
	}
	return b
}

// PolicyV1 implements [kubernetes.Interface].
func (b byUID) PolicyV1() typed.PolicyV1Interface { return policyByUID{b.Interface.PolicyV1(), b} }

type policyByUID struct {
	typed.PolicyV1Interface
	of byUID
}

// Evictions implements [typed.EvictionsGetter].
func (p policyByUID) Evictions(namespace string) typed.EvictionInterface {
	return evictByUID{p.PolicyV1Interface.Evictions(namespace), p.of}
}

type evictByUID struct {
	typed.EvictionInterface
	of byUID
}

// Evict implements [typed.EvictionExpansion]. A pod that is another one by now is gone.
func (e evictByUID) Evict(ctx context.Context, eviction *policyv1.Eviction) error {
	uid := e.of.uids[types.NamespacedName{Namespace: eviction.Namespace, Name: eviction.Name}]
	if eviction.DeleteOptions == nil {
		eviction.DeleteOptions = &metav1.DeleteOptions{}
	}
	eviction.DeleteOptions.Preconditions = &metav1.Preconditions{UID: &uid}
	err := e.EvictionInterface.Evict(ctx, eviction)
	if !apierrors.IsConflict(err) {
		return err
	}
	now, failed := e.of.CoreV1().Pods(eviction.Namespace).Get(ctx, eviction.Name, metav1.GetOptions{})
	if failed == nil && now.UID == uid {
		return apierrors.NewTooManyRequests(err.Error(), 0) // somebody wrote it meanwhile: asked again
	}
	return apierrors.NewNotFound(corev1.Resource("pods"), eviction.Name)
}

// deadGrace is how long past its time a pod may be there whose Node nobody hears of, in
// seconds: no kubelet says that it has ended.
const deadGrace = 60

// flags are those of caisson-kube for the ones of kubectl that its library names in errors.
var flags = strings.NewReplacer("--delete-emptydir-data", "--drain-delete-emptydir", "--force", "--drain-force")

// refused says why no pod of a Node was touched, nil where none refused.
func refused(errs []error) error {
	for i, err := range errs {
		if text := flags.Replace(err.Error()); text != err.Error() {
			errs[i] = errors.New(text)
		}
	}
	return errors.Join(errs...)
}

// explain says why pods are not gone that were evicted since a time: the library names the
// pods, and neither the deadline nor what keeps a pod that is to end.
func (d *Drainer) explain(ctx context.Context, began time.Time, pods []corev1.Pod, err error) error {
	if time.Since(began) < d.Policy.Timeout {
		return err
	}
	err = fmt.Errorf("not drained within %s: %w", d.Policy.Timeout, err)
	for _, p := range pods {
		now, failed := d.Client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(failed) || failed == nil && now.UID != p.UID:
		case failed != nil:
			return errors.Join(err, fmt.Errorf("read pod %s/%s: %w", p.Namespace, p.Name, failed))
		case now.DeletionTimestamp != nil && len(now.Finalizers) > 0:
			err = errors.Join(err, fmt.Errorf("pod %s/%s waits for its finalizers: %s", p.Namespace, p.Name, strings.Join(now.Finalizers, ", ")))
		}
	}
	return err
}

// remember notes which slots Nodes have, and at the first look takes the marks that stand and
// that an instance before has written. It counts the Nodes that are being drained.
func (d *Drainer) remember(nodes map[string]*corev1.Node, held map[string]service.Slot, under map[string]map[string]bool) error {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	had := map[string]bool{} // no more than there are Nodes and slots
	for name, n := range nodes {
		m, marked := markOf(n)
		has := d.work.had[name+" "+m.Group]
		if marked && d.work.had == nil && time.Since(m.Since) < Believed {
			var err error
			if has, err = d.proven(n, m); err != nil {
				return fmt.Errorf("see who marked Node %s: %w", name, err)
			}
		}
		if marked && has {
			had[name+" "+m.Group] = true
		}
	}
	if d.work.had == nil {
		d.work.at, d.work.waiting = map[string]*drainage{}, map[string]time.Time{}
	}
	for which := range held {
		had[which] = true
	}
	d.work.had = had
	for name, one := range d.work.at {
		count(under, one.slot.Group, name)
	}
	return nil
}

// count adds a Node to those of a group.
func count(under map[string]map[string]bool, group, name string) {
	if under[group] == nil {
		under[group] = map[string]bool{}
	}
	under[group][name] = true
}

// leave reports whether a node is being drained, or is left alone for a while.
func (d *Drainer) leave(name string) bool {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	return d.work.at[name] != nil || time.Now().Before(d.work.waiting[name])
}

// groups asks the index about nodes, nobody where none waits.
func (d *Drainer) groups(ctx context.Context, asking []service.Slot) (map[string][]string, error) {
	if len(asking) == 0 {
		return nil, nil
	}
	var nodes []string
	for _, s := range asking {
		nodes = append(nodes, s.Node)
	}
	return d.Index(ctx, nodes)
}

// refuse says why a node must not be drained, and leaves it alone for a while.
func (d *Drainer) refuse(name string, why error) error {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(d.work.waiting, func(_ string, until time.Time) bool { return now.After(until) })
	d.work.waiting[name] = now.Add(time.Minute)
	return fmt.Errorf("drain Node %.80s: %w", name, why)
}

// controlPlane says that a Node is of the control plane, nil where it is not.
func controlPlane(n *corev1.Node) error {
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		if _, is := n.Labels[label]; is {
			return errors.New("it is of the control plane, which is drained by hand: 'caisson fleet slots release' lets others have their turn")
		}
	}
	return nil
}

// Annotation is on a Node that is drained: for which fleet, the group of slots, and whether
// it was we who cordoned it.
const Annotation = "caisson.dev/drain"

// Believed is how long after it was written the mark of an instance before keeps others waiting:
// a kubelet can write an old one of its own again.
const Believed = 24 * time.Hour

// mark is the annotation's value.
type mark struct {
	Namespace string    `json:"namespace"` // of the fleet; "" where an older release wrote it
	Group     string    `json:"group"`
	Cordoned  bool      `json:"cordoned"` // by us
	Since     time.Time `json:"since,omitzero"`
	MAC       string    `json:"mac,omitempty"` // of the Node and the mark without it, by [Slots]
}

// text is the mark as it is written.
func (m mark) text() string {
	text, _ := json.Marshal(m) // texts, a flag, and a time of now or as JSON had it
	return string(text)
}

// markOf returns what is written on a Node, and whether anything is.
func markOf(n *corev1.Node) (m mark, marked bool) {
	text := n.Annotations[Annotation]
	if text == "" || json.Unmarshal([]byte(text), &m) != nil || m.Group == "" {
		return mark{}, false
	}
	return m, true
}

// seal returns the mark of a Node with its MAC.
func (d *Drainer) seal(n *corev1.Node, m mark) (mark, error) {
	m.MAC = ""
	mac, err := d.Slots.MAC("drain of Node " + n.Name + " " + string(n.UID) + " " + m.text())
	m.MAC = mac
	return m, err
}

// proven reports whether the mark of a Node is one that this process or one before has written.
func (d *Drainer) proven(n *corev1.Node, m mark) (bool, error) {
	own, err := d.seal(n, m)
	return err == nil && m.MAC != "" && hmac.Equal([]byte(own.MAC), []byte(m.MAC)), err
}

// owns reports whether a mark is this fleet's. One that names no fleet is, where the Node has
// a slot of its group here, or where no other fleet could have written it.
func (d *Drainer) owns(m mark, hasSlot bool) bool {
	if m.Namespace == "" {
		return hasSlot || d.Alone
	}
	return m.Namespace == d.Namespace
}

// others says that a Node is drained for another fleet, nil where it is not.
func (d *Drainer) others(n *corev1.Node) error {
	if m, marked := markOf(n); marked && !d.owns(m, true) {
		return fmt.Errorf("it is drained for the fleet of the namespace %s", m.Namespace)
	}
	return nil
}

// waitEvents are the Events, at one look, about Nodes that wait for another which does not come
// back. One that stood at the look before is not recorded again.
type waitEvents struct {
	d   *Drainer
	now map[string]string // text by Node and reason
}

// overdue reports whether a Node has not been ready for longer than a Node takes to start over.
func (d *Drainer) overdue(n *corev1.Node) bool {
	return !ready(n) && time.Since(readiness(n).LastTransitionTime.Time) > d.Patience
}

// slotHeld records that a Node is overdue and has its slot still.
func (w *waitEvents) slotHeld(n *corev1.Node, group string) {
	if w.d.overdue(n) {
		w.record(n, "KeepsOthersWaiting", fmt.Sprintf("it has a slot of %s and has not been ready for %s: where it does not "+
			"come back, 'caisson fleet slots release %s %s --reason TEXT' and 'kubectl delete node %s' let others have their turn",
			group, w.d.Patience, group, n.Name, n.Name))
	}
}

// slotReturned records that a Node is overdue and has its slot no more.
func (w *waitEvents) slotReturned(n *corev1.Node, group string) {
	if w.d.overdue(n) {
		w.record(n, "KeepsOthersWaiting", fmt.Sprintf("it gave a slot of %s back and has not been ready for %s: where it "+
			"does not come back, 'kubectl delete node %s' lets others have their turn", group, w.d.Patience, n.Name))
	}
}

// notDrained records that a Node is not drained because of others, where one of these is overdue.
func (w *waitEvents) notDrained(n *corev1.Node, others []*corev1.Node, group string) {
	for _, other := range others {
		if w.d.overdue(other) {
			w.record(n, "WaitsForAnother", fmt.Sprintf("it is not drained for its slot of %s while Node %s is not ready, which "+
				"had one", group, other.Name))
			return
		}
	}
}

func (w *waitEvents) record(n *corev1.Node, reason, text string) {
	key := n.Name + " " + reason
	w.now[key] = text
	if w.d.recorded[key] != text {
		w.d.Events.Eventf(n, nil, corev1.EventTypeWarning, reason, "Drain", "%s", text)
	}
}
