// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec/site"
)

// A node without the label of the groups, and a share of too few nodes, are errors of validate: no
// node would be counted, or none would move.
func TestBudgetsOfASite(t *testing.T) {
	for strategy, want := range map[string]string{
		"{maxUnavailable: 1, per: rack}":       `the node g has no label "rack", whose values are the groups`,
		"{overall: 5%}":                        "5% of 7 nodes is not one node: none would ever move",
		"{overall: 20%, order: [{each: row}]}": "no node of the rollout has the label row",
		"{overall: 20%}":                       "",
	} {
		text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: m}\nattached: true\nnodes:\n"
		for _, n := range []string{"a", "b", "c", "d", "e", "f"} {
			text += "  - {name: " + n + ", labels: {rack: r1}}\n"
		}
		text += "  - {name: g}\n---\napiVersion: caisson.dev/v1alpha1\nkind: Rollout\nmetadata: {name: roll}\nspec: {strategy: " + strategy + "}\n"
		s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
		err := found.Err()
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", strategy, err, want)
		case want != "":
		case err != nil:
			t.Errorf("%s: %v", strategy, err)
		default:
			r, _, err := s.Rollout("roll")
			if b := r.Budget(s.Nodes()); err != nil || b.Overall != 1 || len(b.Nodes) != 7 {
				t.Errorf("%s: %+v, %v", strategy, b, err)
			}
		}
	}
}
