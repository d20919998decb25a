// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
)

// ErrAway is returned while the database cannot be used. What it had is shown as it was.
var ErrAway = errors.New("the database of this service cannot be used now; it is tried again")

const (
	lookEvery = 5 * time.Second // at a database that is away, or that another instance writes to
	lookTime  = time.Minute
)

// lockChange permits one change of the database, until end is called, or returns why none is
// possible.
func (h *Hub) lockChange() (end func(), err error) {
	h.changing.Lock()
	if err := h.WriteError(); err != nil {
		h.changing.Unlock()
		return nil, err
	}
	return h.changing.Unlock, nil
}

// WriteError returns why this instance accepts nothing; nil where it does.
func (h *Hub) WriteError() error {
	switch {
	case h.Writes():
		return nil
	case h.awayError() != nil:
		return ErrAway
	}
	return ErrReadOnly
}

// awayError returns why the database cannot be used.
func (h *Hub) awayError() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.away
}

// noteAway notes that the database cannot be used: this instance accepts nothing until it
// can. Another one may write meanwhile.
func (h *Hub) noteAway(why error) {
	h.changing.Lock()
	defer h.changing.Unlock()
	h.o.Store.Release()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes.Store(false) // who sees that, waits for why
	if h.away == nil {
		h.o.Say("%v: reports and requests for slots are refused until the database can be used again, which is tried each "+
			"%d seconds", why, int(lookEvery.Seconds()))
	}
	h.away = why
	h.startListening()
}

// startListening begins the time in which reports can arrive; mu is held.
func (h *Hub) startListening() {
	h.listens, h.kept = h.o.startTime(), nil
	h.notifyWatchers()
}

// checkStore finds out whether this instance can still write to the database. One that
// does not write finds out whether it can now: the database may be back, or the other
// instance gone.
func (h *Hub) checkStore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	h.changing.Lock()
	defer h.changing.Unlock()
	if h.Writes() {
		return h.o.Store.Holds(ctx)
	}
	err := h.o.Store.Write(ctx)
	taken := errors.Is(err, store.ErrTaken)
	was := h.awayError()
	switch {
	case taken && was == nil:
		return nil
	case err != nil && !taken:
		return err
	case was != nil: // it may have been put back from a copy
		h.rev = 0
	}
	if err := h.readNodes(ctx); err != nil {
		return err
	}
	h.writes.Store(!taken)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = nil
	switch {
	case taken:
		h.o.Say("the database can be used again; another instance writes to it, and this one is read-only")
	case was != nil:
		h.o.Say("the database can be used again, and this instance writes")
	default:
		h.o.Say("the other instance is gone: this one writes now")
	}
	h.startListening()
	return nil
}

// retiredKept is how long after its last report a node is shown that is not published any
// more. One that was retired by mistake comes back as what it was until then.
const retiredKept = 7 * 24 * time.Hour

// forgetRetired lets go of nodes that were retired: their rows, history, keys and slots. A hub
// that only reads lets go of what it has in memory, by the same rule.
func (h *Hub) forgetRetired(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	h.changing.Lock()
	defer h.changing.Unlock()
	h.mu.RLock()
	gone := map[string]bool{}
	for name, n := range h.nodes {
		if h.fleet.Root != "" && n.view.Published == nil && h.o.Now().Sub(n.view.Received) > retiredKept {
			gone[name] = true
		}
	}
	h.mu.RUnlock()
	if len(gone) == 0 {
		return nil
	}
	if h.Writes() {
		if err := h.o.Store.Forget(ctx, slices.Collect(maps.Keys(gone))); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range gone {
		delete(h.proofs, name)
		delete(h.hints, name)
		n := &node{view: view.Node{Name: name, Published: h.nodes[name].view.Published}}
		if h.nodes[name] = n; n.view.Published == nil { // else it was published again meanwhile
			delete(h.nodes, name)
		}
	}
	maps.DeleteFunc(h.keys, func(_, of string) bool { return gone[of] })
	h.slots = slices.DeleteFunc(slices.Clone(h.slots), func(l store.Slot) bool { return gone[l.Node] })
	h.kept = nil
	h.notifyWatchers()
	return nil
}
