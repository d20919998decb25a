// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Annotation is on a Node that is drained: for which fleet, the group of slots, and whether
// it was we who cordoned it.
const Annotation = "caisson.dev/drain"

// mark is the annotation's value.
type mark struct {
	Namespace string `json:"namespace"` // of the fleet; "" where an older release wrote it
	Group     string `json:"group"`
	Cordoned  bool   `json:"cordoned"` // by us
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
