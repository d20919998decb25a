// SPDX-License-Identifier: Apache-2.0

package rescue

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
)

// without returns the rules but for some.
func (r rules) without(names ...string) rules {
	for _, name := range names {
		r = rules{r.book.Without(name), r.offer.Without(name), r.used.Without(name), r.open.Without(name)}
	}
	return r
}

func (r rules) names() []string {
	return slices.Concat(r.book.Names(), r.offer.Names(), r.used.Names(), r.open.Names())
}

// lets plays a row, and reports whether somebody is in at its end.
func lets(t *testing.T, row attack.Rescue, r rules) bool {
	t.Helper()
	w := newWorld(t)
	must := func(b *Book, err error) *Book {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	boot := "boot 1"
	b := must(begin(w.root, boot, r))
	before, up := b.Code, time.Minute
	statement := func(code string) trust.Candidate {
		return w.Rescue(spec.Rescue{Code: code, Console: true, Lasts: cmp.Or(row.Seconds, 60)}, w.key)
	}
	same := statement(b.Code)
	if row.Obeyed {
		good := w.Rescue(spec.Rescue{Code: b.Code, Console: true, Lasts: 60, Reason: "the good one"}, w.key)
		if row.Same {
			same = good
		}
		if _, err := b.Offer(good, w.node, up); err != nil {
			t.Fatal(err)
		}
	}
	for range row.Guesses {
		if _, err := b.Offer(statement(spec.NewCode()), w.node, up); err == nil {
			t.Fatal("a guess was right")
		}
	}
	if row.Reboot {
		boot = "boot 2"
	}
	if row.Reboot || row.Agent {
		b = must(begin(w.root, boot, r))
	}
	if up += row.After; b.Open != nil {
		b.Open.At = b.Open.At.Add(row.Back) // what is in the book is ahead of a clock that was set back
	}
	if row.Looks {
		return b.Open != nil && r.open.Run(moment{b.Open, up}) == nil
	}
	switch {
	case row.Code == "before":
		same = statement(before)
	case !row.Same:
		same = statement(b.Code)
	}
	_, err := b.Offer(same, w.node, up)
	return err == nil
}

// TestAttacks: each is stopped by the check that it names, and each check stops one.
func TestAttacks(t *testing.T) {
	named := map[string]bool{}
	for _, row := range attack.LoadClass[attack.Rescue](t, "rescue") {
		if row.At != "bootagent/rescue" || row.Test != "" {
			continue
		}
		named[row.Check] = true
		t.Run(row.Name, func(t *testing.T) {
			if in := lets(t, row, whole); in != (row.Check == "") {
				t.Errorf("somebody is in: %v", in)
			}
			if row.Check == "" {
				return
			}
			if row.Also != "" && lets(t, row, whole.without(row.Also)) {
				t.Errorf("somebody is in without %q alone: it is not a second check", row.Also)
			}
			if !lets(t, row, whole.without(row.Check, row.Also)) {
				t.Errorf("nobody is in without the check %q", row.Check)
			}
		})
	}
	for _, name := range whole.names() {
		if !named[name] {
			t.Errorf("no attack names the check %q", name)
		}
	}
}
