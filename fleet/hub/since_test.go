// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/storetest"
)

// since asks a hub what came since a cursor.
func since(h *Hub, cursor string) (names, next string) {
	nodes, next := h.Since(cursor)
	for _, n := range nodes {
		names += n.Name + " "
	}
	return names, next
}

// TestSince: who asks gets each report once. A cursor goes on at another instance of the same database,
// and one that is of neither, or of a database that was put back, gets all.
func TestSince(t *testing.T) {
	require.Slow(t)
	storetest.Each(t, func(t *testing.T, db string) {
		r := newRigAt(t, db, "n1", "n2", "n3")
		for i := range 3 {
			r.must(r.report(fmt.Sprint("k", i+1), fmt.Sprint("n", i+1), 1, nil))
		}
		all, cursor := since(r.hub, "")
		if all != "n1 n2 n3 " {
			t.Fatalf("at first: %q", all)
		}
		if names, next := since(r.hub, cursor); names != "" || next != cursor {
			t.Errorf("without news: %q, %s behind %s", names, next, cursor)
		}
		r.must(r.report("k2", "n2", 2, nil))
		second, _ := r.open()
		names, next := since(second, cursor)
		if names != "n2 " {
			t.Errorf("another instance goes on with %q", names)
		}
		r.must(second.refresh(t.Context()))
		r.must(r.report("k3", "n3", 2, nil))
		if names, _ := since(r.hub, next); names != "n3 " {
			t.Errorf("back at the first one: %q", names)
		}
		for _, wrong := range []string{"x", "-1", "9999999.1", "1."} {
			if names, _ := since(r.hub, wrong); names != all {
				t.Errorf("behind %q: %q", wrong, names)
			}
		}
	})
}

// TestSinceSaysWhoIsUnheard: where another instance began to listen later, it says so of each node that
// it did not hear since, and of no other.
func TestSinceSaysWhoIsUnheard(t *testing.T) {
	r := newRig(t, "n1", "n2")
	r.hears = true
	r.restart()
	r.must(r.report("k1", "n1", 1, nil))
	r.must(r.report("k2", "n2", 1, nil))
	_, cursor := r.hub.Since("")
	r.later(time.Minute)
	r.restart()
	r.later(time.Second)
	r.must(r.report("k1", "n1", 2, nil))
	nodes, next := r.hub.Since(cursor)
	if len(nodes) != 2 || !nodes[0].Listens.IsZero() || nodes[1].Listens.IsZero() {
		t.Errorf("behind a restart: %+v", nodes)
	}
	if names, _ := since(r.hub, next); names != "" {
		t.Errorf("it says so again: %q", names)
	}
}
