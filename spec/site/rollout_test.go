// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec/site/report"
)

func rollingSite(t *testing.T, nodes int, waves string) *Site {
	t.Helper()
	return operatingAt(t, rollingText(nodes, waves), "2026-11-21")
}

func rollingText(nodes int, waves string) string {
	var b strings.Builder
	b.WriteString("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nnodes:\n")
	for i := range nodes {
		fmt.Fprintf(&b, "- {name: n%02d, labels: {rack: r%d}}\n", i, i%3)
	}
	b.WriteString("---\napiVersion: caisson.dev/v1alpha1\nkind: NodeSet\nmetadata: {name: first}\nspec: {match: {hosts: [n0*]}}\n")
	b.WriteString("---\napiVersion: caisson.dev/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {waves: " + waves + "}\n")
	return b.String()
}

func TestRolloutWaves(t *testing.T) {
	for _, c := range []struct{ waves, want, without string }{
		{"[{hosts: [n03]}]", "1:1 2:11", ""},
		{"[{percent: 10}, {percent: 50}]", "1:2 2:6 3:4", ""},
		{"[{count: 5}, {count: 50}, {count: 1}]", "1:5 2:7", ""},
		{"[{each: rack}]", "1-r0:4 1-r1:4 1-r2:4", ""},
		{"[{set: first}]", "1-first:10 2:2", ""},
		{"[{hosts: [n00]}, {each: rack}, {hosts: [n01]}]", "1:1 2-r0:3 2-r1:4 2-r2:4", ""},
		{"[{hosts: [n00]}, {rest: true}]", "1:1 2:11", ""},
		{"[{hosts: ['n*'], rest: true}]", "1:12", ""},
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
	// Of sixteen nodes some change; of thirty the last wave has to say that it is large.
	kinds := []string{"{hosts: ['n1*']}", "{percent: 30}", "{count: 2}", "{each: rack}", "{set: first}", "{hosts: [n00, n07]}"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		all, rest := 16, ""
		if random.IntN(2) == 0 {
			all, rest = 30, ", {rest: true}"
		}
		nodes := 1 + random.IntN(all)
		var waves []string
		for range 1 + random.IntN(4) {
			waves = append(waves, kinds[random.IntN(len(kinds))])
		}
		text := "[" + strings.Join(waves, ", ") + rest + "]"
		_, divide, err := rollingSite(t, all, text).Rollout("r")
		if err != nil {
			t.Fatal(err)
		}
		got := divide(func(node string) bool { return node < fmt.Sprintf("n%02d", nodes) })
		var taken []string
		for _, w := range got {
			if len(w.Nodes) == 0 || !slices.IsSorted(w.Nodes) {
				t.Errorf("%s of %d: wave %+v", text, nodes, w)
			}
			taken = append(taken, w.Nodes...)
		}
		slices.Sort(taken)
		if len(taken) != nodes || len(slices.Compact(taken)) != nodes {
			t.Errorf("%s of %d nodes takes %v", text, nodes, taken)
		}
	}
}

// A word that names no node is an error with the nearest word: its nodes would come with the
// last wave, at once. What is large says so.
func TestMistypedWaves(t *testing.T) {
	for _, c := range []struct {
		nodes       int
		waves, want string
	}{
		{12, "[{hosts: [n03, n13]}]", "no node of the rollout has the name n13; did you mean n03?"},
		{12, "[{hosts: ['m*']}]", "no node of the rollout has the name m*"},
		{12, "[{each: rak}]", "no node of the rollout has the label rak; did you mean rack?"},
		{12, "[{each: rack}, {set: none}]", "no node of the rollout belongs to the NodeSet none; no node has the name nod1"},
		{17, "[{count: 1}]", ""},
		{18, "[{count: 1}]", "the nodes that are in no wave are 17 of 18 at once; write rest: true"},
		{60, "[{hosts: [n00]}]", "the nodes that are in no wave are 59 of 60 at once"},
		{60, "[{hosts: [n00]}, {rest: true}]", ""},
		{60, "[{hosts: [n00]}, {percent: 100}]", "the nodes of wave 2 are 59 of 60 at once; write rest: true"},
		{60, "[{hosts: [n00]}, {count: 59}]", "the nodes of wave 2 are 59 of 60 at once"},
		{60, "[{percent: 25}, {percent: 50}, {rest: true}]", "the nodes of wave 2 are 30 of 60 at once"},
		{60, "[{percent: 25}, {percent: 50, rest: true}, {count: 15}]", ""},
		{60, "[{count: 45, rest: true}, {count: 15}]", ""},
		{60, "[{each: rack}]", ""},
		{60, "[{hosts: ['n*']}]", "the nodes of wave 1 are 60 of 60 at once"},
		{60, "[{hosts: ['n*'], rest: true}]", ""},
		{60, "[{hosts: ['n[0-3]*']}, {each: rack}]", "the nodes of wave 1 are 40 of 60 at once"},
		{60, "[{hosts: ['n[01]*']}, {each: rack}]", ""}, // no more than a rack
		{60, "[{hosts: ['n0*']}, {rest: true, each: rack}]", "rest is not for each"},
		{60, "[{rest: false}]", "a wave has one of"},
	} {
		_, r := Parse(files("site.yaml", rollingText(c.nodes, c.waves)+"---\napiVersion: caisson.dev/v1alpha1\nkind: NodeSet\nmetadata: {name: none}\nspec: {match: {hosts: [nod1]}}\n"), "site.yaml")
		var got []string
		for _, p := range r.Problems {
			if p.Severity == report.Error {
				got = append(got, p.Message+"; "+p.Hint)
			}
		}
		if text := strings.Join(got, "\n"); (c.want == "") != (text == "") || !strings.Contains(text, c.want) {
			t.Errorf("%d nodes, %s: %q, want %q", c.nodes, c.waves, text, c.want)
		}
	}
}
