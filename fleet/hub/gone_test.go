// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"testing"
	"time"

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
