// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// waits are what is told, at one look, of Nodes that wait for another which does not come back.
// What was told at the look before is not told again.
type waits struct {
	d   *Drainer
	now map[string]string // by Node and reason
}

// overdue reports whether a Node has not been ready for longer than a Node takes to start over.
func (d *Drainer) overdue(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionTrue && time.Since(c.LastTransitionTime.Time) > d.Patience
		}
	}
	return true
}

// holds tells of a Node that is overdue and has its slot still.
func (w *waits) holds(n *corev1.Node, group string) {
	if w.d.overdue(n) {
		w.tell(n, "KeepsOthersWaiting", fmt.Sprintf("it has a slot of %s and has not been ready for %s: where it does not come back, 'caisson fleet slots release %s %s --reason TEXT' and 'kubectl delete node %s' let others have their turn", group, w.d.Patience, group, n.Name, n.Name))
	}
}

// held tells of a Node that is overdue and has its slot no more.
func (w *waits) held(n *corev1.Node, group string) {
	if w.d.overdue(n) {
		w.tell(n, "KeepsOthersWaiting", fmt.Sprintf("it gave a slot of %s back and has not been ready for %s: where it does not come back, 'kubectl delete node %s' lets others have their turn", group, w.d.Patience, n.Name))
	}
}

// waits tells of a Node that is not drained because of others, where one of these is overdue.
func (w *waits) waits(n *corev1.Node, others []*corev1.Node, group string) {
	for _, other := range others {
		if w.d.overdue(other) {
			w.tell(n, "WaitsForAnother", fmt.Sprintf("it is not drained for its slot of %s while Node %s is not ready, which had one", group, other.Name))
			return
		}
	}
}

func (w *waits) tell(n *corev1.Node, reason, text string) {
	key := n.Name + " " + reason
	w.now[key] = text
	if w.d.told[key] != text {
		w.d.Events.Eventf(n, nil, corev1.EventTypeWarning, reason, "Drain", "%s", text)
	}
}

// end remembers what was told: what is over and comes again is told again.
func (w *waits) end() { w.d.told = w.now }
