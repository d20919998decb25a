// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/oci/sign"
)

// TestTheSlotOfARetiredNode: what took a slot and will never give it back keeps no other
// node waiting longer than an operator wants.
func TestTheSlotOfARetiredNode(t *testing.T) {
	r := newRig(t, "n1", "n2")
	r.must(r.report("k1", "n1", 1, nil))
	r.must(r.report("k2", "n2", 1, nil))
	r.must(r.hub.TakeSlot(t.Context(), "default", "n1", r.proof("k1")))
	r.publish("2", 2, "n2")
	r.hub.readIndex(t.Context())
	r.must(r.hub.ReleaseSlot(t.Context(), "default", "n1", "eve", "it burnt"))
	r.must(r.hub.TakeSlot(t.Context(), "default", "n2", r.proof("k2")))
}

// TestARetiredNodeIsSilent: that is what it was retired for, and nobody need look.
func TestARetiredNodeIsSilent(t *testing.T) {
	r := newRig(t, "n1", "n2")
	r.must(r.report("k1", "n1", 1, nil))
	r.must(r.report("k2", "n2", 1, nil))
	r.publish("2", 1, "n2")
	r.hub.readIndex(t.Context())
	r.later(24 * time.Hour)
	r.is("n1", view.Retired)
	r.is("n2", view.Silent)
}

// TestAcceptingIsNotHearing: a key that is accepted long after it reported brings a
// report of then, which no rollout takes for one of now.
func TestAcceptingIsNotHearing(t *testing.T) {
	r := newRig(t, "n1")
	r.must(r.report("k1", "n1", 1, nil))
	r.must(r.report("k2", "n1", 1, nil))
	then := r.clock
	r.later(20 * time.Hour)
	r.must(r.hub.Accept(t.Context(), "n1", sign.VerifierOf(r.key("k2")).ID(), "eve"))
	if d, err := r.hub.Node(t.Context(), "n1"); err != nil || d.Received.Sub(then).Abs() > time.Second {
		t.Errorf("%+v, %v", d, err)
	}
	r.is("n1", view.Silent)
}

// TestARetiredNodeIsForgotten: what it reports is refused, with why, as is its key under
// another name; a week after its last report nothing of it is left, here or in the
// database, and the machine may come back as another node, or as itself.
func TestARetiredNodeIsForgotten(t *testing.T) {
	r := newRig(t, "n1", "n2", "n3")
	for _, n := range []string{"1", "2", "3"} {
		r.must(r.report("k"+n, "n"+n, 1, nil))
	}
	r.must(r.hub.TakeSlot(t.Context(), "default", "n1", r.proof("k1")))
	reader, _ := r.open()
	r.publish("2", 2, "n2", "n4")
	r.hub.readIndex(t.Context())
	reader.readIndex(t.Context())
	for what, err := range map[string]error{
		"node n1 was retired":            r.report("k1", "n1", 2, nil),
		"key belongs to retired node n1": r.report("k1", "n4", 2, nil),
		"nothing is published for it":    r.report("other", "n1", 2, nil),
	} {
		if r.refused(what, err); err != nil && !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	r.later(retiredKept - time.Hour)
	r.must(r.hub.forgetRetired(t.Context()))
	r.is("n1", view.Retired)
	r.publish("3", 3, "n2", "n3", "n4") // n3 was retired by mistake
	r.hub.readIndex(t.Context())
	r.later(2 * time.Hour)
	for _, h := range []*Hub{r.hub, reader} {
		r.must(h.forgetRetired(t.Context()))
		if _, err := h.Node(t.Context(), "n1"); !errors.Is(err, ErrNoNode) {
			t.Errorf("n1 is still there: %v", err)
		}
	}
	r.must(r.report("k3", "n3", 2, nil)) // by the key that was pinned
	r.must(r.hub.TakeSlot(t.Context(), "default", "n3", r.proof("k3")))
	r.must(r.report("k1", "n4", 3, nil)) // the machine has another name now
	r.restart()
	r.is("n4", view.Behind)
	r.publish("4", 4, "n1", "n2", "n3")
	r.hub.readIndex(t.Context())
	r.is("n1", view.Never)
}

// TestNothingIsForgottenUnread: what is published cannot be read at a start, and all that
// is known stays.
func TestNothingIsForgottenUnread(t *testing.T) {
	r := newRig(t, "n1")
	r.must(r.report("k1", "n1", 1, nil))
	r.later(2 * retiredKept)
	r.hub.mu.Lock()
	r.hub.fleet = Published{}
	r.hub.nodes["n1"].view.Published = nil
	r.hub.mu.Unlock()
	r.must(r.hub.forgetRetired(t.Context()))
	r.is("n1", view.Retired)
}

// TestANodeComesBackWhileItIsForgotten: one that was retired by mistake and is published again just
// then is there.
func TestANodeComesBackWhileItIsForgotten(t *testing.T) {
	r := newRig(t, "n1", "n2")
	r.must(r.report("k1", "n1", 1, nil))
	r.stop()
	s, err := store.Open(t.Context(), r.db)
	r.must(err)
	defer s.Close() // the test is over
	o, asked := r.options(s), make(chan struct{}, 1)
	now := o.Now
	o.Now = func() time.Time {
		select {
		case asked <- struct{}{}:
		default: // it was told already
		}
		return now()
	}
	h, err := Open(t.Context(), o)
	r.must(err)
	r.publish("2", 2, "n2")
	h.readIndex(t.Context())
	r.later(retiredKept + time.Hour)
	other, err := sql.Open("sqlite", strings.TrimPrefix(r.db, "sqlite:"))
	r.must(err)
	defer other.Close() // the test is over
	writes, err := other.Conn(t.Context())
	r.must(err)
	_, err = writes.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	r.must(err)
	select {
	case <-asked:
	default:
	}
	forgotten := make(chan error, 1)
	go func() { forgotten <- h.forgetRetired(context.Background()) }()
	<-asked // it looks at the nodes, and waits for the database then
	r.publish("3", 3, "n1", "n2")
	h.readIndex(t.Context())
	_, err = writes.ExecContext(t.Context(), "ROLLBACK")
	r.must(err)
	r.must(<-forgotten)
	if d, err := h.Node(t.Context(), "n1"); err != nil || d.Published == nil || d.Report != nil {
		t.Errorf("%+v, %v", d, err)
	}
}
