// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/store"
)

// readFor is how long a node that asks for a slot waits until what is published was read.
const readFor = 10 * time.Second

// fits wants that the budgets of rollouts let a node be disturbed. Until end is called the node is
// among those that hold a slot: a driver that writes the index first is seen here, and one that
// writes it later sees this.
func (h *Hub) fits(ctx context.Context, group, name string) (end func(), err error) {
	h.mu.Lock()
	held := 0
	for _, l := range h.slots {
		if l.Group == group {
			held++
		}
		if l.Group == group && l.Node == name {
			h.mu.Unlock()
			return func() {}, nil // it keeps it
		}
	}
	n := h.nodes[name]
	if held >= h.o.Groups[group] || n == nil || n.view.Published == nil {
		h.mu.Unlock()
		return func() {}, nil // it gets none, for another reason
	}
	h.asking = &store.Slot{Group: group, Node: name, Since: h.o.Now().UTC().Truncate(time.Second)}
	h.mu.Unlock()
	end = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.asking = nil
	}
	limited, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	h.readIndex(limited)
	h.mu.Lock()
	full, trouble := h.full(name), h.indexErr
	h.mu.Unlock()
	if trouble != nil {
		full = fmt.Sprintf("whether a rollout leaves room is not known: %v", trouble)
	}
	if full != "" {
		end()
		return nil, &SlotError{"budget", full}
	}
	return end, nil
}

// full says why the budgets of rollouts do not let a node be disturbed now, "" where they do; mu
// is held.
func (h *Hub) full(name string) string {
	if !slices.ContainsFunc(h.fleet.Rollouts, func(s rollout.State) bool { return s.Budget != nil }) {
		return ""
	}
	if h.room == nil {
		h.room = rollout.NewRoom(h.fleet.Rollouts)
		for _, n := range h.nodes {
			h.room.Tell(&n.view)
		}
	}
	busy := map[string]string{}
	for _, l := range h.slots {
		busy[l.Node] = "slot of " + l.Group
	}
	return h.room.Full(name, busy, h.listens, h.o.Now())
}
