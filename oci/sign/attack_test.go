// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/attack"
)

// judge verifies a world's overlay by some rules.
func judge(t *testing.T, row attack.Row, r rules) error {
	t.Helper()
	w := row.Forge(t)
	keys, err := ParsePublics(attack.Publics(t, w.Node.Keys))
	if err != nil {
		return err
	}
	_, err = overlays.verify(r, set{w.Bundles, keys, w.Node.Threshold}, w.OverlayDigest)
	return err
}

// TestAttacks runs the rows that this package must refuse, and the controls.
func TestAttacks(t *testing.T) {
	for _, row := range attack.Load(t) {
		if row.Refuses() && row.Of() != "sign" {
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			if got := refusal.Of(judge(t, row, whole)); got != refusal.Code(row.Code) {
				t.Errorf("code %q, want %q", got, row.Code)
			}
		})
	}
}

// TestNoCheckIsVacuous takes each check out in turn, and wants every row that
// names it to fail, and every check to have a row.
func TestNoCheckIsVacuous(t *testing.T) {
	rows := map[string][]attack.Row{}
	for _, r := range attack.Load(t) {
		if pkg, name, _ := strings.Cut(r.Check, "/"); pkg == "sign" {
			rows[name] = append(rows[name], r)
		}
	}
	for name, r := range without() {
		t.Run(name, func(t *testing.T) {
			if len(rows[name]) == 0 {
				t.Fatal("no attack names this check")
			}
			for _, row := range rows[name] {
				if refusal.Of(judge(t, row, r)) == refusal.Code(row.Code) {
					t.Errorf("%s: refused as %s all the same", row.Name, row.Code)
				}
			}
		})
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("attacks name the check %q, which is none of this package", name)
	}
}

// without gives the rules with one check missing, by its name. Parsers are made
// lenient instead: without a document there is nothing to attack.
func without() map[string]rules {
	out := map[string]rules{}
	for _, name := range whole.set.Names() {
		r := whole
		r.set = whole.set.Without(name)
		out[name] = r
	}
	lenient := map[string]func(*candidate) error{
		"bundle form":    func(c *candidate) error { return first(c.raw, &c.bundle) },
		"statement form": func(c *candidate) error { return first(c.bundle.Envelope.Payload, &c.statement) },
		"predicate form": func(c *candidate) error {
			first(c.statement.Predicate, c.into) // whatever can be read of it
			return nil
		},
	}
	for _, name := range whole.bundle.Names() {
		r := whole
		if r.bundle = whole.bundle.Without(name); lenient[name] != nil {
			r.bundle = whole.bundle.With(name, lenient[name])
		}
		out[name] = r
	}
	r := whole
	r.enough = func([]string, int) bool { return true }
	out["enough"] = r
	return out
}

// first parses as a careless program does.
func first(data []byte, into any) error {
	return json.NewDecoder(strings.NewReader(string(data))).Decode(into)
}
