// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/store"
)

// retiredKept is how long after its last report a node is shown that is not published any
// more. One that was retired by mistake comes back as what it was until then.
const retiredKept = 7 * 24 * time.Hour

// forgetTime is how long a transaction that forgets nodes may take.
const forgetTime = time.Minute

// forgetRetired lets go of nodes that were retired: their rows, history, keys and slots. A hub
// that only reads lets go of what it has in memory, by the same rule.
func (h *Hub) forgetRetired(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, forgetTime)
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
		delete(h.nodes, name)
		delete(h.proofs, name)
		delete(h.hints, name)
	}
	maps.DeleteFunc(h.keys, func(_, of string) bool { return gone[of] })
	h.slots = slices.DeleteFunc(slices.Clone(h.slots), func(l store.Slot) bool { return gone[l.Node] })
	h.sorted = nil
	h.notifyWatchers()
	return nil
}
