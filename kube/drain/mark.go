// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"crypto/hmac"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

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
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // two texts and a flag
	}
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

// end remembers what stands: what is over and comes again is recorded again.
func (w *waitEvents) end() { w.d.recorded = w.now }
