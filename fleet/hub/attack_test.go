// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
)

// TestAttackRows: nobody frees a node's slot but the node, and with its check taken away
// each row does.
func TestAttackRows(t *testing.T) {
	named := map[string]bool{}
	for _, row := range attack.LoadClass[attack.Service](t, "service") {
		if row.At != "fleet/hub" || row.Slot == nil {
			continue
		}
		named[row.Check] = true
		t.Run(row.Name, func(t *testing.T) {
			if freed := frees(t, row, ""); freed != (row.Check == "") {
				t.Errorf("it is freed: %v", freed)
			}
			if row.Check != "" && !frees(t, row, row.Check) {
				t.Errorf("it is not freed without the check %q", row.Check)
			}
		})
	}
	for _, name := range proofRules.Names() {
		if !named[name] {
			t.Errorf("no attack names the check %q", name)
		}
	}
}

// frees reports whether a row frees the slot of n1 where a check is taken away.
func frees(t *testing.T, row attack.Service, without string) bool {
	t.Helper()
	r := newRig(t, "n1", "n2")
	grade := func(o *spec.Report) {
		if row.Slot.Later != "" {
			o.Grade = spec.KeyBoot
		}
	}
	r.must(r.report("k1", "n1", 1, grade))
	r.must(r.report("k2", "n2", 1, nil))
	r.must(r.hub.TakeSlot(t.Context(), "default", "n1", r.proofOf("k1", "b1", "here")))
	used := r.proof("k1")
	r.must(r.hub.FreeSlot(t.Context(), "default", "n1", used))
	r.later(time.Minute)
	r.must(r.hub.TakeSlot(t.Context(), "default", "n1", r.proofOf("k1", "b1", "here")))
	if row.Slot.Later != "" { // a boot later another key counts, from there
		r.later(time.Hour)
		r.must(r.from(row.Slot.Later, row.Slot.Key, "n1", 1, booted("b2")))
	}
	r.hub.proofRules = proofRules.Without(without)
	p := used
	switch {
	case row.Slot.Key == "none":
		p = Proof{}
	case !row.Slot.Again:
		p = r.proof(row.Slot.Key)
		p.Boot = cmp.Or(row.Slot.Boot, p.Boot)
		p.At = p.At.Add(row.Slot.Ahead)
		p.Place = row.Slot.Later
	}
	if err := r.hub.FreeSlot(t.Context(), "default", "n1", p); err != nil && without != "" {
		t.Log(err)
	}
	return len(r.hub.Slots()[0].Held) == 0
}

// TestNobodyIsSilentForGood: who has a node's key for one report cannot hide that the
// node says nothing any more.
func TestNobodyIsSilentForGood(t *testing.T) {
	r := newRig(t, "n1")
	r.must(r.report("k1", "n1", 10, func(o *spec.Report) { o.Interval = 1 << 40 }))
	r.later(3*24*time.Hour + 2*time.Minute)
	r.is("n1", view.Silent)
}
