// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// waitEvents are the Events, at one look, about Nodes that wait for another which does not come
// back. One that stood at the look before is not recorded again.
type waitEvents struct {
	d   *Drainer
	now map[string]string // text by Node and reason
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

// end remembers what stands: what is over and comes again is recorded again.
func (w *waitEvents) end() { w.d.recorded = w.now }
