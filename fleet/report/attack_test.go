// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
)

// TestAttackRows: no row's report counts, and each does with its check taken away.
func TestAttackRows(t *testing.T) {
	named := map[string]bool{}
	for _, row := range attack.LoadClass[attack.Service](t, "service") {
		if row.At != "fleet/report" || row.Report == nil {
			continue
		}
		named[row.Check] = true
		if counts := plays(t, row, opening, rules); counts != (row.Check == "") {
			t.Errorf("%s: it counts: %v", row.Name, counts)
		}
		if row.Check != "" && !plays(t, row, opening.Without(row.Check), rules.Without(row.Check)) {
			t.Errorf("%s: it does not count without the check %q", row.Name, row.Check)
		}
	}
	for _, name := range slices.Concat(opening.Names(), rules.Names()) {
		if !named[name] {
			t.Errorf("no attack names the check %q", name)
		}
	}
}

// plays reports whether a row's report counts.
func plays(t *testing.T, row attack.Service, opening check.List[opened], rules check.List[claim]) bool {
	t.Helper()
	keys := map[string]sign.Verifier{}
	for _, name := range []string{"a", "b"} {
		k, err := sign.Generate()
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = sign.VerifierOf(k)
	}
	a, now := *row.Report, time.Unix(1790000000, 0)
	signed := cmp.Or(a.Key, "a")
	digest := "sha256:" + strings.Repeat("a", 64)
	r := &spec.Report{Node: "n1", Layer: cmp.Or(a.Layer, digest), Overlay: cmp.Or(a.Overlay, digest), Key: keys[cmp.Or(a.Names, signed)].ID(), BootID: cmp.Or(a.Boot, "b1"), Seq: cmp.Or(a.Seq, 8)}
	r.TPM = a.TPM
	for range a.Steps {
		r.Boot = append(r.Boot, spec.Step{Name: "x", Start: 1, Took: cmp.Or(a.Took, 1)})
	}
	r.Time = now.Add(a.Ahead)
	if opening.Run(opened{r, keys[signed], a.Under, now}) != nil {
		return false
	}
	since := now.Add(-cmp.Or(a.Ago, time.Hour))
	known := Reporter{Key: keys["a"].ID(), Grade: spec.KeyGrade(cmp.Or(a.Grade, string(spec.KeyPinned))), Since: since, Heard: since.Add(time.Minute), Silent: !a.Alive, Seq: 7, Boot: "b1"}
	if a.Awaited {
		known = Reporter{}
	}
	v, _ := judge(rules, claim{known, Key{Node: a.Owner, Awaited: a.Awaited, GivenUp: a.GivenUp, Rivalled: a.Rivalled}, r, now})
	return v == Counts
}
