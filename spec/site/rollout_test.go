// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func rollingSite(t *testing.T, nodes int, waves string) *Site {
	t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nnodes:\n")
	for i := range nodes {
		fmt.Fprintf(&b, "- {name: n%02d, labels: {rack: r%d}}\n", i, i%3)
	}
	b.WriteString("---\napiVersion: caisson.dev/v1alpha1\nkind: NodeSet\nmetadata: {name: first}\nspec: {match: {hosts: [n0*]}}\n")
	b.WriteString("---\napiVersion: caisson.dev/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {waves: " + waves + "}\n")
	return operatingAt(t, b.String(), "2026-11-21")
}

func TestRolloutWaves(t *testing.T) {
	for _, c := range []struct{ waves, want, without string }{
		{"[{hosts: [n03]}]", "1:1 2:11", ""},
		{"[{percent: 10}, {percent: 50}]", "1:2 2:6 3:4", ""},
		{"[{count: 5}, {count: 50}, {count: 1}]", "1:5 2:7", ""},
		{"[{each: rack}]", "1-r0:4 1-r1:4 1-r2:4", ""},
		{"[{set: first}]", "1-first:10 2:2", ""},
		{"[{hosts: [n00]}, {each: rack}, {hosts: [none]}]", "1:1 2-r0:3 2-r1:4 2-r2:4", ""},
		{"[{each: shelf}]", "2:12", ""},
		{"[{percent: 10}, {count: 3}]", "1:1 2:3 3:5", "n00 n01 n02"},
		{"[{hosts: [n00]}, {percent: 50}]", "2:5 3:4", "n00 n01 n02"},
	} {
		_, divide, err := rollingSite(t, 12, c.waves).Rollout("r")
		if err != nil {
			t.Fatal(err)
		}
		waves := divide(func(node string) bool { return !strings.Contains(c.without, node) })
		var got []string
		for _, w := range waves {
			got = append(got, fmt.Sprintf("%s:%d", w.Name, len(w.Nodes)))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: waves %s, want %s", c.waves, text, c.want)
		}
	}
	if _, _, err := rollingSite(t, 2, "[{count: 1}]").Rollout("other"); err == nil || !strings.Contains(err.Error(), `the site has no rollout "other"`) {
		t.Errorf("an unknown rollout: %v", err)
	}
}

// However waves are written, each node is in one of them.
func TestRolloutTakesEachNodeOnce(t *testing.T) {
	kinds := []string{"{hosts: ['n1*']}", "{percent: 30}", "{count: 2}", "{each: rack}", "{set: first}", "{hosts: [n00, n07]}"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		nodes := 1 + random.IntN(30)
		var waves []string
		for range 1 + random.IntN(4) {
			waves = append(waves, kinds[random.IntN(len(kinds))])
		}
		text := "[" + strings.Join(waves, ", ") + "]"
		_, divide, err := rollingSite(t, nodes, text).Rollout("r")
		if err != nil {
			t.Fatal(err)
		}
		got := divide(func(string) bool { return true })
		var all []string
		for _, w := range got {
			if len(w.Nodes) == 0 || !slices.IsSorted(w.Nodes) {
				t.Errorf("%s of %d: wave %+v", text, nodes, w)
			}
			all = append(all, w.Nodes...)
		}
		slices.Sort(all)
		if len(all) != nodes || len(slices.Compact(all)) != nodes {
			t.Errorf("%s of %d nodes takes %v", text, nodes, all)
		}
	}
}
