// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
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
		g.Held = append(g.Held, plain.Pick(h.slots, func(l store.Slot) (Held, bool) {
			return Held{l.Group, l.Node, l.Since, h.draining(l)}, l.Group == name
		})...)
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
	return h.changeSlot(ctx, group, name, &p, func(held []store.Slot, mine *store.Slot) (c store.Change, err error) {
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
	p.frees = true
	return h.changeSlot(ctx, group, name, &p, func(_ []store.Slot, mine *store.Slot) (c store.Change, err error) {
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
	return h.changeSlot(ctx, group, name, nil, func(_ []store.Slot, mine *store.Slot) (c store.Change, err error) {
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
	return h.changeSlot(ctx, group, name, nil, func(_ []store.Slot, mine *store.Slot) (c store.Change, err error) {
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
func (h *Hub) changeSlot(ctx context.Context, group, name string, by *Proof,
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
	asked := ask{Proof: p, last: h.proofs[name], now: h.o.Now(), held: mine}
	if n != nil {
		asked.known = n.known
	}
	h.mu.RUnlock()
	if by != nil {
		if n == nil || n.view.Published == nil { // an operator may take one from a node that was retired
			return &SlotError{"unknown_node", fmt.Sprintf("the fleet has no node %.80q", name)}
		}
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
	busy := plain.Map(h.slots, func(l store.Slot) (string, string) { return l.Node, "slot of " + l.Group })
	return h.room.Full(name, busy, h.listens, h.o.Now())
}

// Proof holds what a request for a slot proves: which key signed it, in which boot of its
// node, and when. The zero value proves nothing.
type Proof struct {
	Key, Boot string
	At        time.Time
	Place     string // that the request came from, as for [Hub.Take]
	frees     bool   // it gives the slot back
}

// proofAge is how far a node's clock may be off.
const proofAge = 2 * time.Minute

// ask is a request for a slot beside what is known of the node that it names.
type ask struct {
	Proof
	known report.Reporter
	last  time.Time   // of the proof before
	now   time.Time   // by this service's clock
	held  *store.Slot // of the node; nil where it has none
}

// Unproven is the kind of a [SlotError] about a proof.
const Unproven = "unproven"

// proofRules say whether a request is the node's own word, now. A proof is taken once:
// who copies one on its way can do nothing with it. A diskless node has another key after
// a reboot: that one gives a slot back from the place that it was taken from, or after an
// operator pinned it.
var proofRules = check.List[ask]{
	{Name: "what was taken with a proof takes a proof", OK: func(a ask) error {
		if a.Key == "" && a.held != nil && a.held.Key != "" {
			return &SlotError{"not_yours", "the slot of this node was taken with a proof"}
		}
		return nil
	}},
	{Name: "signed by the key that the node reports with", OK: checkProof(func(a ask) string {
		switch {
		case a.known.Key == a.Key:
			return ""
		case a.known.Key == "":
			return "the node has not reported yet: no key of it is known"
		}
		return "the proof is signed by another key than the node's reports"
	})},
	{Name: "a later key gives back where the slot was taken", OK: checkProof(func(a ask) string {
		if h := a.held; !a.frees || h == nil || h.Key == "" || h.Key == a.Key || h.Place == a.Place || h.Place == "" ||
			a.known.Grade == spec.KeyPinned {
			return ""
		}
		return "the slot was taken with another key, and from another address or with another token"
	})},
	{Name: "of this boot", OK: checkProof(func(a ask) string {
		if a.known.Boot == a.Boot {
			return ""
		}
		return "the proof and the node's last report are from different boots"
	})},
	{Name: "of this time", OK: checkProof(func(a ask) string {
		if d := a.At.Sub(a.now); d >= -proofAge && d <= proofAge {
			return ""
		}
		return fmt.Sprintf("the proof has time %s, more than %s from this service's clock", a.At.UTC().Format(time.RFC3339), proofAge)
	})},
	{Name: "later than the one before", OK: checkProof(func(a ask) string {
		if a.At.After(a.last) {
			return ""
		}
		return fmt.Sprintf("the proof is not later than the one before it, of %s", a.last.Format(time.RFC3339Nano))
	})},
}

// checkProof makes a check of what is wrong with a proof, where there is one.
func checkProof(wrong func(ask) string) func(ask) error {
	return func(a ask) error {
		if a.Key == "" {
			return nil
		}
		if why := wrong(a); why != "" {
			return &SlotError{Unproven, why}
		}
		return nil
	}
}

// Quoted returns what is known of a node's quotes: nil where that is nothing, and false where
// the fleet has no such node.
func (h *Hub) Quoted(name string) (*view.Quote, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	n := h.nodes[name]
	if n == nil || n.view.Published == nil {
		return nil, false
	}
	return n.view.Quote, true
}

// KeepQuote keeps what came of a node's quote, in the place of what was there, where that is still
// from. act says by which operator, "" where nobody did it, and what is for the node's history.
func (h *Hub) KeepQuote(ctx context.Context, name string, from, to *view.Quote, act audit.Row) error {
	end, err := h.lockChange()
	if err != nil {
		return err
	}
	defer end()
	w := h.newWork()
	old := w.node(name)
	if old == nil || old.view.Published == nil {
		return ErrNoNode
	}
	if old.view.Quote != from {
		return &RefusedError{"another quote came meanwhile"}
	}
	text, _ := spec.Encode(to) // texts, and times of this service's clock or as JSON had them
	n := *old
	n.view.Quote = to
	w.nodes[name], w.texts[name] = &n, store.Node{Quote: string(text)}
	now, what := h.o.Now().UTC(), act.Said
	if act.Who != "" {
		w.change.Acts = []audit.Row{audit.New(now, act.Who, audit.Accept, name, what)}
		what = act.Who + " accepted the machine " + what
	}
	if what != "" && (act.Who != "" || h.mayRecord(name, now)) {
		w.addEvent(now, name, what)
	}
	return w.write(ctx)
}

// readQuote reads what a database has of quotes. What cannot be read was written by
// somebody else, and says nothing.
func readQuote(kept string) *view.Quote {
	if kept == "" {
		return nil
	}
	var q view.Quote
	if err := json.Unmarshal([]byte(kept), &q); err != nil {
		return &view.Quote{State: view.Changed, Why: "what the database has of its quotes cannot be read: " + plain.Line(err.Error())}
	}
	q.Why = plain.Line(q.Why)
	return &q
}
