// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/store"
)

// Group is one set of slots.
type Group struct {
	Name string `json:"name"`
	Max  int    `json:"max"` // nodes that may hold a slot at a time
	Held []Held `json:"held"`
}

// Held is a slot that a node holds.
type Held struct {
	Group string    `json:"group"`
	Node  string    `json:"node"`
	Since time.Time `json:"since"`

	Draining bool `json:"draining,omitempty"` // the node waits until somebody says that it is drained
}

// Slots returns the groups by name, with their holders, the oldest first.
func (h *Hub) Slots() []Group {
	h.mu.RLock()
	defer h.mu.RUnlock()
	list := []Group{}
	for _, name := range slices.Sorted(maps.Keys(h.o.Groups)) {
		g := Group{Name: name, Max: h.o.Groups[name], Held: []Held{}}
		for _, l := range h.slots {
			if l.Group == name {
				g.Held = append(g.Held, Held{l.Group, l.Node, l.Since, h.draining(l)})
			}
		}
		if a := h.asking; a != nil && a.Group == name {
			g.Held = append(g.Held, Held{Group: a.Group, Node: a.Node, Since: a.Since})
		}
		list = append(list, g)
	}
	return list
}

// SlotError says why a node does not get a slot, or may not give it back. Kind is a
// word for programs.
type SlotError struct{ Kind, Why string }

func (e *SlotError) Error() string { return e.Why }

// Draining is the kind of a [SlotError]: the node has a slot, and may act when it is drained.
const Draining = "draining"

// draining reports whether a slot's node has yet to be drained.
func (h *Hub) draining(l store.Slot) bool { return h.o.Drains[l.Group] && l.Drained.IsZero() }

// TakeSlot gives a node a slot of a group. A node that has it already keeps it. In a group
// whose nodes are drained that is an error of kind [Draining] until somebody says that this
// one is. A request that proves nothing drains nobody: anybody could send it.
func (h *Hub) TakeSlot(ctx context.Context, group, name string, p Proof) error {
	h.giving.Lock()
	defer h.giving.Unlock()
	end, err := h.fits(ctx, group, name)
	if err != nil {
		return err
	}
	defer end()
	return h.changeSlot(ctx, group, name, &p, false, func(held []store.Slot, mine *store.Slot) (c store.Change, err error) {
		switch {
		case mine != nil && h.draining(*mine):
			return c, &SlotError{Draining, fmt.Sprintf("it is being drained since %s", mine.Since.Format(time.RFC3339))}
		case mine != nil:
			return c, nil
		case h.o.Drains[group] && p.Key == "":
			return c, &SlotError{Unproven, "nodes of group " + group + " are drained, and the request is not signed by the node"}
		case len(held) >= h.o.Groups[group]:
			return c, &SlotError{"all_slots_full", fmt.Sprintf("%d of %d slots of group %s are held, one by %s since %s",
				len(held), h.o.Groups[group], group, held[0].Node, held[0].Since.Format(time.RFC3339))}
		}
		c.Taken = []store.Slot{{Group: group, Node: name, Since: h.o.Now().UTC().Truncate(time.Second), Key: p.Key, Place: p.Place}}
		if h.mayRecord(name, h.o.Now()) {
			c.Events = []store.Event{{At: h.o.Now(), Node: name, What: "it took a slot of " + group}}
		}
		if h.draining(c.Taken[0]) {
			err = &SlotError{Draining, "it has a slot, and is being drained"}
		}
		return c, err
	})
}

// FreeSlot gives a node's slot back. That a node has none is not an error.
func (h *Hub) FreeSlot(ctx context.Context, group, name string, p Proof) error {
	return h.changeSlot(ctx, group, name, &p, true, func(_ []store.Slot, mine *store.Slot) (c store.Change, err error) {
		if mine == nil {
			return c, nil
		}
		c.Freed = []store.Slot{*mine}
		if h.mayRecord(name, h.o.Now()) {
			c.Events = []store.Event{{At: h.o.Now(), Node: name, What: "it gave a slot of " + group + " back"}}
		}
		return c, nil
	})
}

// ReleaseSlot takes a slot from a node, by an operator's word.
func (h *Hub) ReleaseSlot(ctx context.Context, group, name, by, reason string) error {
	return h.changeSlot(ctx, group, name, nil, true, func(_ []store.Slot, mine *store.Slot) (c store.Change, err error) {
		if mine == nil {
			return c, &SlotError{"not_held", name + " holds no slot of " + group}
		}
		c.Freed = []store.Slot{*mine}
		c.Events = []store.Event{{At: h.o.Now(), Node: name, What: by + " released its slot of " + group + ": " + reason}}
		c.Acts = []audit.Row{audit.New(h.o.Now(), by, audit.Release, name, group+": "+reason)}
		return c, nil
	})
}

// Drained notes that a node which holds a slot was drained: it may act.
func (h *Hub) Drained(ctx context.Context, group, name, by, what string) error {
	return h.changeSlot(ctx, group, name, nil, false, func(_ []store.Slot, mine *store.Slot) (c store.Change, err error) {
		switch {
		case mine == nil:
			return c, &SlotError{"not_held", name + " holds no slot of " + group}
		case !h.draining(*mine):
			return c, nil
		}
		done := *mine
		done.Drained = h.o.Now().UTC().Truncate(time.Second)
		c.Drains = []store.Slot{done}
		c.Events = []store.Event{{At: h.o.Now(), Node: name, What: by + " drained it for its slot of " + group + ": " + what}}
		c.Acts = []audit.Row{audit.New(h.o.Now(), by, audit.Drained, name, group+": "+what)}
		return c, nil
	})
}

// changeSlot decides about a node's slot. A proof, nil where an operator acts, is used up also
// where the answer is no.
func (h *Hub) changeSlot(ctx context.Context, group, name string, by *Proof, frees bool,
	decide func(held []store.Slot, mine *store.Slot) (store.Change, error)) error {
	if h.o.Groups[group] == 0 {
		return &SlotError{"unknown_group", fmt.Sprintf("there is no group %.80q", group)}
	}
	end, err := h.lockChange()
	if err != nil {
		return err
	}
	defer end()
	h.mu.RLock()
	n := h.nodes[name]
	var held []store.Slot
	var mine *store.Slot
	for i, l := range h.slots {
		if l.Group == group {
			held = append(held, l)
			if l.Node == name {
				mine = &h.slots[i]
			}
		}
	}
	var p Proof
	if by != nil {
		p = *by
	}
	asked := ask{Proof: p, last: h.proofs[name], now: h.o.Now(), held: mine, frees: frees}
	if n != nil {
		asked.known = n.known
	}
	h.mu.RUnlock()
	if by != nil && (n == nil || n.view.Published == nil) { // an operator may take one from a node that was retired
		return &SlotError{"unknown_node", fmt.Sprintf("the fleet has no node %.80q", name)}
	}
	if by != nil {
		if err := h.proofRules.Run(asked); err != nil {
			return err
		}
	}
	c, refused := decide(held, mine)
	if p.Key != "" {
		c.Proofs = []store.Proof{{Node: name, At: p.At.UTC()}}
	}
	if len(c.Taken)+len(c.Freed)+len(c.Drains)+len(c.Proofs) == 0 {
		return refused
	}
	if err := h.o.Store.Apply(ctx, c); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slots = slices.DeleteFunc(slices.Clone(h.slots), func(l store.Slot) bool {
		return len(c.Freed)+len(c.Drains) > 0 && l.Group == group && l.Node == name
	})
	h.slots = append(append(h.slots, c.Drains...), c.Taken...)
	if p.Key != "" {
		h.proofs[name] = p.At.UTC()
	}
	if len(c.Taken)+len(c.Freed)+len(c.Drains) > 0 {
		h.notifyWatchers()
	}
	return refused
}

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
