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
