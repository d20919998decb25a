// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Hint keeps an unproven statement about a node from an address, in place of the one
// before. It is shown, and neither stored nor counted.
func (h *Hub) Hint(said spec.Hint, from string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if said.Fleet != h.fleet.Fleet {
		return &RefusedError{fmt.Sprintf("hint for fleet %.60q, this service serves %q", said.Fleet, h.fleet.Fleet)}
	}
	name := h.nameMachine(said)
	if name == "" {
		return &RefusedError{"nothing is published for that machine"}
	}
	h.hints[name] = view.Hint{Node: name, At: h.o.Now().UTC(), From: from, Why: plain.Line(said.Why), Code: said.Code}
	h.keep(h.nodes[name])
	h.notifyWatchers()
	return nil
}

// nameMachine returns the published node that a machine claims to be, "" for none: by its
// hardware first, as the name may be DHCP's. mu is held.
func (h *Hub) nameMachine(said spec.Hint) string {
	if h.hardware == nil { // who sends hints without end must not have all nodes compared each time
		h.hardware = map[string]string{}
		for name, n := range h.nodes {
			if p := n.view.Published; p != nil {
				for _, id := range slices.Concat(p.Match.MACs, p.Match.UUIDs) {
					h.hardware[id] = name
				}
			}
		}
	}
	for _, id := range slices.Concat(said.Match.MACs, said.Match.UUIDs) {
		if name := h.hardware[id]; name != "" {
			return name
		}
	}
	if n := h.nodes[said.Node]; n != nil && n.view.Published != nil {
		return said.Node
	}
	return ""
}

// viewNode is a node with the hint about it; mu is held.
func (h *Hub) viewNode(n *node) *view.Node {
	hint, hinted := h.hints[n.view.Name]
	before := n.view.Received.Before(h.listens)
	if !hinted && !before {
		return &n.view
	}
	v := n.view
	if hinted {
		v.Hint = &hint
	}
	if before {
		v.Listens = h.listens
	}
	return &v
}
