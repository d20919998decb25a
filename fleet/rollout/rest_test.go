// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// A node is taken as long as its group and all nodes have room; one that is unavailable
// already costs nothing more.
func TestTake(t *testing.T) {
	of := &spec.RolloutBudget{Per: "rack", Each: 1, Overall: 2, Nodes: map[string]string{"a": "r1", "b": "r1", "c": "r2", "d": "r3"}}
	c := newRest(of, map[string]string{"a": "silent", "stranger": "silent"}, nil)
	for _, step := range []struct{ node, full string }{
		{"b", "rack r1: 1 unavailable, 1 may be: a (silent)"},
		{"a", ""},
		{"c", ""},
		{"c", ""},
		{"d", "2 of all nodes unavailable, 2 may be: a (silent), c (moves)"},
		{"stranger", ""},
	} {
		if got := c.take(step.node, "moves"); got != step.full {
			t.Errorf("%s: %q, want %q", step.node, got, step.full)
		}
	}
	if !c.unavailable("c") || c.unavailable("d") {
		t.Error("c was taken, and d was not")
	}
}

// A node that is only assumed to be unavailable counts for others, and needs room itself.
func TestAssumed(t *testing.T) {
	of := &spec.RolloutBudget{Per: "rack", Each: 2, Nodes: map[string]string{"a": "r1", "b": "r1", "c": "r1", "d": "r2", "e": "r2"}}
	all := map[string]string{"a": "silent", "b": "silent", "c": "silent", "d": "silent", "e": "silent"}
	c := newRest(of, all, map[string]bool{"b": true, "c": true, "d": true, "e": true})
	for _, step := range []struct {
		node string
		full bool
	}{{"a", false}, {"b", true}, {"c", true}, {"d", false}, {"e", false}, {"e", false}} {
		if got := c.take(step.node, "moves"); (got != "") != step.full {
			t.Errorf("%s: %q", step.node, got)
		}
	}
	if !c.unavailable("a") || c.unavailable("b") || !c.unavailable("d") {
		t.Error("what is assumed is certain, or what was taken is not")
	}
}

// Of a budget without groups all nodes are one, and a text names a few.
func TestOverallAlone(t *testing.T) {
	of := &spec.RolloutBudget{Overall: 4, Nodes: map[string]string{"a": "", "b": "", "c": "", "d": "", "e": ""}}
	c := newRest(of, map[string]string{"a": "x", "b": "x", "c": "x", "d": "x"}, nil)
	if got := c.full("e"); !strings.HasSuffix(got, "a (x), b (x), c (x) and 1 more") {
		t.Error(got)
	}
	if n := of.AtOnce(3); n != 3 {
		t.Errorf("%d of a group of 3", n)
	}
	if n := of.AtOnce(10); n != 4 || groupSizes(of)[""] != 5 {
		t.Errorf("%d of 10", n)
	}
}
