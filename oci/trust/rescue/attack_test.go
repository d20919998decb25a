// SPDX-License-Identifier: Apache-2.0

package rescue

import (
	"cmp"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/fixture"
)

// lets reports whether a row's statement lets somebody in, without a check.
func lets(t *testing.T, row attack.Rescue, without string) bool {
	w := newWorld(t)
	r := spec.Rescue{Fleet: cmp.Or(row.Fleet, fixture.Name), Node: cmp.Or(row.Node, fixture.Node), Code: code, Lasts: cmp.Or(row.Seconds, 60), Console: row.Opens != "nothing"}
	if row.Code == "guessed" {
		r.Code = "22222-22222"
	}
	w.node.rules = all.Without(without)
	_, err := w.node.Accept(w.Rescue(r, w.rescue))
	return err == nil
}

// TestAttacks: each is stopped by the check that it names.
func TestAttacks(t *testing.T) {
	rows := 0
	for _, row := range attack.LoadClass[attack.Rescue](t, "rescue") {
		if row.At != "oci/trust/rescue" || row.Test != "" {
			continue
		}
		rows++
		t.Run(row.Name, func(t *testing.T) {
			if in := lets(t, row, ""); in != (row.Check == "") {
				t.Errorf("somebody is let in: %v", in)
			}
			if row.Check != "" && !lets(t, row, row.Check) {
				t.Errorf("nobody is let in without the check %q", row.Check)
			}
		})
	}
	if rows < 5 {
		t.Errorf("%d rows are of this package", rows)
	}
}
