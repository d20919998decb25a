// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Proof holds what a request for a slot proves: which key signed it, in which boot of its
// node, and when. The zero value proves nothing.
type Proof struct {
	Key, Boot string
	At        time.Time
	Place     string // that the request came from, as for [Hub.Take]
}

// proofAge is how far a node's clock may be off.
const proofAge = 2 * time.Minute

// ask is a request for a slot beside what is known of the node that it names.
type ask struct {
	Proof
	known report.Known
	last  time.Time   // of the proof before
	now   time.Time   // by this service's clock
	held  *store.Slot // of the node; nil where it has none
	frees bool        // it gives the slot back
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
// from. by is the operator whose act it is, "" where nobody did it; what is for the node's history.
func (h *Hub) KeepQuote(ctx context.Context, name string, from, to *view.Quote, by, what string) error {
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
	text, err := spec.Encode(to)
	if err != nil {
		return err
	}
	n := *old
	n.view.Quote = to
	w.nodes[name], w.texts[name] = &n, store.Node{Quote: string(text)}
	now := h.o.Now().UTC()
	if by != "" {
		w.change.Acts = []audit.Row{audit.New(now, by, audit.Accept, name, what)}
		what = by + " accepted the machine " + what
	}
	if what != "" && (by != "" || h.mayRecord(name, now)) {
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
