// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec"
)

// counted is all that programs and people decide by: summary, conditions, and what a
// rollout reads.
func (r *rig) counted() string {
	r.Helper()
	now := r.hub.Now()
	sum := view.Summarise(r.hub.Nodes())
	sum.Hinted, sum.Hints = 0, nil
	all := []any{sum}
	for _, n := range r.hub.Nodes() {
		l := n.Line(now)
		l.Hint = nil
		reported, ok := report.Last(n.Node)
		all = append(all, l, reported, ok, n.Differs())
	}
	text, err := json.Marshal(all)
	if err != nil {
		r.Fatal(err)
	}
	return string(text)
}

func (r *rig) hinted() (text string) {
	for _, h := range view.Summarise(r.hub.Nodes()).Hints {
		text += h.Node + ": " + h.Why + "; "
	}
	return text
}

// TestAHintCountsForNothing: what a loader says, or who says that he is one, is shown
// for an hour or until the node reports, the last word of each node alone, and changes
// nothing that is counted.
func TestAHintCountsForNothing(t *testing.T) {
	r := newRig(t, "n1", "n2")
	row := r.what.Rows["n2"]
	row.Match = spec.Match{MACs: []string{"52:54:00:00:00:02"}, UUIDs: []string{"u2"}}
	r.what.Rows["n2"], r.what.Root = row, "2"
	r.hub.readIndex(t.Context())
	r.must(r.report("a", "n1", 1, nil))
	before := r.counted()
	r.later(time.Second)
	hint := func(node string, m spec.Match, why string) error {
		return r.hub.Hint(spec.NewHint("f", node, m, why), "192.0.2.1")
	}
	is := func(step, want string) {
		t.Helper()
		if got := r.hinted(); got != want {
			t.Errorf("%s: %q, want %q", step, got, want)
		}
	}
	r.must(hint("n1", spec.Match{}, "one"))
	r.must(hint("n1", spec.Match{}, "two"))
	is("by name", "n1: two; ")
	if d, err := r.hub.Node(t.Context(), "n1"); err != nil || d.Hint == nil || d.Hint.From != "192.0.2.1" || d.Condition != view.Fine {
		t.Errorf("%+v, %v", d, err)
	}
	r.later(time.Second)
	r.must(hint("", spec.Match{MACs: []string{"x", "52:54:00:00:00:02"}}, "three"))
	is("by address", "n2: three; n1: two; ")
	r.must(hint("", spec.Match{UUIDs: []string{"u2"}}, "four"))
	is("by UUID", "n2: four; n1: two; ")
	if now := r.counted(); now != before {
		t.Errorf("hints changed\n%s\ninto\n%s", before, now)
	}
	for _, wrong := range []spec.Hint{spec.NewHint("g", "n1", spec.Match{}, "x"), spec.NewHint("f", "n9", spec.Match{MACs: []string{"x"}}, "x"), spec.NewHint("f", "", spec.Match{}, "x")} {
		var refused *RefusedError
		if err := r.hub.Hint(wrong, "192.0.2.1"); !errors.As(err, &refused) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	is("after those", "n2: four; n1: two; ")
	r.must(r.report("a", "n1", 2, nil))
	is("after a report", "n2: four; ")
	r.later(view.HintKept)
	is("an hour later", "n2: four; ")
	r.later(time.Second)
	is("after that", "")
	// Of a node that is gone nothing is kept.
	r.publish("3", 2, "n1")
	r.hub.readIndex(t.Context())
	r.must(hint("n1", spec.Match{}, "five"))
	if len(r.hub.hints) != 1 {
		t.Errorf("%d hints are kept", len(r.hub.hints))
	}
}

// TestHintsOfAFleet: of very many hints some are listed, and all counted.
func TestHintsOfAFleet(t *testing.T) {
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	r := newRig(t, names...)
	for _, name := range names {
		r.must(r.hub.Hint(spec.NewHint("f", name, spec.Match{}, "x"), "192.0.2.1"))
	}
	if s := view.Summarise(r.hub.Nodes()); s.Hinted != 50 || len(s.Hints) != 12 || s.Trouble != 0 {
		t.Errorf("%d, %d listed, %d in trouble", s.Hinted, len(s.Hints), s.Trouble)
	}
}
