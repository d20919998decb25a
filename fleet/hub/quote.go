// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

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
