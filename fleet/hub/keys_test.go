// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec"
)

// booted is a report of a diskless node in a boot.
func booted(boot string) func(*spec.Report) {
	return func(o *spec.Report) { o.Grade, o.BootID = spec.KeyBoot, boot }
}

// from sends a report from a place.
func (r *rig) from(place, key, node string, seq uint64, change func(*spec.Report)) error {
	r.Helper()
	return r.hub.reportFrom(r.Context(), r.sealed(key, node, seq, change), place)
}

// counts fails unless a key counts for a node.
func (r *rig) counts(node, key string, grade spec.KeyGrade) {
	r.Helper()
	d, err := r.hub.Node(r.Context(), node)
	if err != nil || d.Key != r.id(key) || d.Grade != grade {
		r.Errorf("%s: the key that counts is %.8s, %s, %v; want %s (%.8s), %s", node, d.Key, d.Grade, err, key, r.id(key), grade)
	}
}

// TestBootKeys: the key of another boot is offered while the one before it may report
// still, as nothing but a boot, and counts after that.
func TestBootKeys(t *testing.T) {
	r := newRig(t, "n1")
	r.must(r.report("a", "n1", 1, booted("1")))
	r.later(3 * time.Minute)
	r.must(r.report("b", "n1", 1, booted("2")))
	r.is("n1", view.Fine)
	r.counts("n1", "a", spec.KeyBoot)
	r.later(5 * time.Minute)
	r.must(r.report("b", "n1", 2, booted("2")))
	r.is("n1", view.Fine)
	r.later(9 * time.Minute) // three intervals and a minute are 16
	r.must(r.report("b", "n1", 3, booted("2")))
	r.is("n1", view.Fine)
	r.counts("n1", "b", spec.KeyBoot)
	r.refused("the boot before, played back", r.report("a", "n1", 1, booted("1")))
	r.later(time.Minute)
	r.must(r.report("b", "n1", 4, booted("2")))
	r.is("n1", view.Fine)
}

// TestFailedBoots: each boot of a diskless node has a key, those that failed, too. Until one of
// them counts the node is silent at most, and not said to be another.
func TestFailedBoots(t *testing.T) {
	r := newRig(t, "n1")
	r.must(r.report("a", "n1", 1, booted("1")))
	for n := range 4 {
		r.later(3 * time.Minute)
		r.must(r.report(fmt.Sprint("b", n), "n1", 1, booted(fmt.Sprint(n+2))))
		r.is("n1", view.Fine)
	}
	r.later(5 * time.Minute) // the first key is silent by now, and the last one's next report is late
	r.is("n1", view.Silent)
	r.must(r.report("b3", "n1", 2, booted("5")))
	r.is("n1", view.Fine)
}

// TestAStrangersKey: who has no key of a diskless node does not speak for it while it
// reports, nor after it was not heard for a while; its key is offered, as a conflict.
func TestAStrangersKey(t *testing.T) {
	r := newRig(t, "n1")
	seq := uint64(0)
	real := func() {
		t.Helper()
		seq++
		r.must(r.report("a", "n1", seq, booted("1")))
	}
	thief := func(n uint64) {
		t.Helper()
		r.must(r.report("thief", "n1", n, func(o *spec.Report) {
			o.BootID, o.Axes.Health.State = "x", "broken" // of grade pinned, as it says
		}))
	}
	for range 20 { // well over an hour
		real()
		r.later(4 * time.Minute)
	}
	r.must(r.hub.TakeSlot(t.Context(), "default", "n1", r.proofOf("a", "1", "")))
	for n := range uint64(10) {
		thief(n + 1)
		r.counts("n1", "a", spec.KeyBoot)
		r.later(time.Minute)
		real()
		r.is("n1", view.OtherKey)
		r.later(4 * time.Minute)
	}
	if err := r.hub.FreeSlot(t.Context(), "default", "n1", r.proofOf("thief", "x", "")); err == nil {
		t.Error("a stranger frees the node's slot")
	}
	// The node is cut off for half an hour.
	r.later(30 * time.Minute)
	thief(20)
	r.counts("n1", "thief", spec.KeyBoot)
	r.is("n1", view.Broken)
	r.restart()
	r.later(4 * time.Minute)
	thief(21)
	real() // and reports again
	r.counts("n1", "a", spec.KeyBoot)
	r.later(time.Minute)
	thief(22)
	r.counts("n1", "a", spec.KeyBoot)
	r.later(time.Minute)
	real()
	r.is("n1", view.OtherKey)
	r.restart()
	r.is("n1", view.OtherKey)
	r.later(5 * time.Minute)
	real()
	r.later(15 * time.Minute) // the stranger says nothing more: the conflict ends
	real()
	r.is("n1", view.Fine)
	d, err := r.hub.Node(t.Context(), "n1")
	r.must(err)
	var all []string
	for _, e := range d.History {
		all = append(all, e.What)
	}
	if text := strings.Join(all, "; "); !strings.Contains(text, "another key reports for this node") || !strings.Contains(text, "an earlier key reports again, and counts") {
		t.Error(text)
	}
}

// TestAServiceThatWasAway heard nobody: that a node was silent meanwhile is not a reason for
// another key to count.
func TestAServiceThatWasAway(t *testing.T) {
	r := newRig(t, "n1")
	r.hears = true
	r.must(r.report("a", "n1", 1, booted("1")))
	r.later(5 * time.Hour)
	r.restart()
	r.must(r.report("thief", "n1", 1, booted("x")))
	r.counts("n1", "a", spec.KeyBoot)
	r.later(time.Minute)
	r.must(r.report("a", "n1", 2, booted("1")))
	r.counts("n1", "a", spec.KeyBoot)
}

// TestTwoAfterABoot: of two keys that come after a boot, the one from the node's own place
// counts, and the other one neither counts nor frees the node's slot.
func TestTwoAfterABoot(t *testing.T) {
	r := newRig(t, "n1")
	for i := range uint64(5) {
		r.must(r.from("192.0.2.1", "a", "n1", i+1, booted("1")))
		r.later(5 * time.Minute)
	}
	r.must(r.hub.TakeSlot(t.Context(), "default", "n1", r.proofOf("a", "1", "192.0.2.1")))
	for i := range uint64(30) { // the node each five minutes, the stranger each minute
		r.must(r.from("192.0.2.66", "thief", "n1", i+1, booted("x")))
		r.later(time.Minute)
		if i%5 == 0 {
			r.must(r.from("192.0.2.1", "b", "n1", i+1, booted("2")))
		}
		if d, err := r.hub.Node(t.Context(), "n1"); err != nil || d.Key == r.id("thief") {
			t.Fatalf("after %d minutes the stranger counts: %v", i, err)
		}
	}
	r.counts("n1", "b", spec.KeyBoot)
	for _, no := range []Proof{r.proofOf("thief", "x", "192.0.2.66"), r.proofOf("b", "2", "192.0.2.66")} {
		var unproven *SlotError
		if err := r.hub.FreeSlot(t.Context(), "default", "n1", no); !errors.As(err, &unproven) || unproven.Kind != Unproven {
			t.Errorf("%+v frees it: %v", no, err)
		}
	}
	r.must(r.hub.FreeSlot(t.Context(), "default", "n1", r.proofOf("b", "2", "192.0.2.1")))
	if held := r.hub.Slots()[0].Held; len(held) != 0 {
		t.Errorf("%+v", held)
	}
}

// TestAReinstalledNode has the condition other-key as long as its new key reports, however
// long that is, and until an operator accepts it.
func TestAReinstalledNode(t *testing.T) {
	r := newRig(t, "n1")
	r.must(r.report("a", "n1", 1, func(o *spec.Report) { o.Axes.Health.State = "broken" }))
	for i := range uint64(30) {
		r.later(5 * time.Minute)
		r.must(r.report("b", "n1", i+1, func(o *spec.Report) { o.BootID = "2" }))
		if i > 3 {
			r.is("n1", view.OtherKey)
		}
	}
	r.later(17 * time.Minute)
	r.is("n1", view.Broken) // nobody reports any more: what it said last
	r.must(r.report("b", "n1", 40, func(o *spec.Report) { o.BootID = "2" }))
	r.is("n1", view.OtherKey)
	r.must(r.hub.Accept(t.Context(), "n1", r.id("b"), "eve"))
	r.is("n1", view.Fine)
	r.counts("n1", "b", spec.KeyPinned)
}

// TestAcceptAnyKey: an operator names a node's key before it reports, whatever key others offer
// one meanwhile, and names an earlier one again.
func TestAcceptAnyKey(t *testing.T) {
	r := newRig(t, "n1", "n2")
	r.must(r.hub.Accept(t.Context(), "n1", r.id("a"), "eve"))
	r.is("n1", view.Never)
	r.restart()
	r.is("n1", view.Never)
	r.must(r.report("thief", "n1", 1, nil)) // the first, and not the one that is waited for
	r.is("n1", view.OtherKey)
	r.must(r.report("a", "n1", 1, nil))
	r.counts("n1", "a", spec.KeyPinned)
	for i := range 3 {
		r.must(r.report(fmt.Sprint("t", i), "n1", 1, nil))
	}
	r.must(r.report("thief", "n1", 2, nil))
	r.counts("n1", "a", spec.KeyPinned)
	r.is("n1", view.OtherKey)
	r.must(r.report("n2's", "n2", 1, nil))
	r.refused("another node's key", r.hub.Accept(t.Context(), "n1", r.id("n2's"), "eve"))
	r.refused("no key", r.hub.Accept(t.Context(), "n1", "x", "eve"))
	r.refused("the key that counts", r.hub.Accept(t.Context(), "n1", r.id("a"), "eve"))
	if err := r.hub.Accept(t.Context(), "n9", r.id("a"), "eve"); !errors.Is(err, ErrNoNode) {
		t.Error(err)
	}
	r.must(r.hub.Accept(t.Context(), "n1", r.id("thief"), "eve")) // he was not a thief
	r.counts("n1", "thief", spec.KeyPinned)
	r.must(r.report("a", "n1", 2, nil))
	r.must(r.hub.Accept(t.Context(), "n1", r.id("a"), "eve"))
	r.counts("n1", "a", spec.KeyPinned)
	// A key that came by itself is pinned by an operator, and by nobody else.
	r.must(r.report("b1", "n2", 1, booted("1")))
	d, err := r.hub.Node(t.Context(), "n2")
	r.must(err)
	if d.Key != r.id("n2's") {
		t.Error("a pinned key was replaced")
	}
}

// TestWhoIsPinned: a key that takes the place of a silent one is one of a boot, whatever
// it says, until an operator accepts it.
func TestWhoIsPinned(t *testing.T) {
	r := newRig(t, "n1")
	r.must(r.report("a", "n1", 1, booted("1")))
	r.later(20 * time.Minute)
	pinned := func(o *spec.Report) { o.BootID = "2" }
	r.must(r.report("b", "n1", 1, pinned))
	r.counts("n1", "b", spec.KeyBoot)
	r.later(time.Minute)
	r.must(r.report("b", "n1", 2, pinned))
	r.counts("n1", "b", spec.KeyBoot)
	r.must(r.hub.Accept(t.Context(), "n1", r.id("b"), "eve"))
	r.counts("n1", "b", spec.KeyPinned)
	r.restart()
	r.counts("n1", "b", spec.KeyPinned)
	r.must(r.report("b", "n1", 3, booted("2"))) // nor does it become less by itself
	r.counts("n1", "b", spec.KeyPinned)
}
