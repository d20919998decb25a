// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"slices"
	"testing"
	"time"
)

// A node whose identity is in doubt keeps its row, its overlay and its generation, whatever
// is published for others; nobody else can be given its identifiers meanwhile.
func TestKept(t *testing.T) {
	f := newFleet(t)
	nodes := func(values ...string) []Node { return f.nodes("", values...) }
	f.publish(nodes("1", "1", "1"), Options{})
	before, err := f.index()
	must(t, err)
	kept := Options{Keep: func(name string) bool { return name == "n0" }}
	f.Now = f.Now.Add(time.Second)
	r := f.publish(nodes("2", "2", "2")[1:], kept)
	if !slices.Equal(r.Kept, []string{"n0"}) || len(r.Left) != 0 || len(r.Published) != 2 {
		t.Errorf("%+v", r)
	}
	after, err := f.index()
	must(t, err)
	if a, b := before.Nodes["n0"], after.Nodes["n0"]; a.Overlay != b.Overlay || a.Generation != b.Generation || a.Manifest != b.Manifest {
		t.Errorf("n0 had %+v and has %+v", a, b)
	}

	thief := nodes("3", "3", "3")[1:]
	thief[0].Match.MACs, thief[0].Doc = []string{"52:54:00:00:00:00"}, f.bound("n1", "52:54:00:00:00:00")
	f.Now = f.Now.Add(time.Second)
	r = f.publish(thief, kept)
	if !slices.Equal(r.Kept, []string{"n0", "n1"}) || len(r.Published) != 1 || r.Published[0].Node != "n2" {
		t.Errorf("%+v", r)
	}

	f.Now = f.Now.Add(time.Second)
	kept.All = true
	if r = f.publish(nodes("3", "3", "3")[1:], kept); !slices.Equal(r.Kept, []string{"n0"}) || len(r.Published) != 3 {
		t.Errorf("with --all it is %+v", r)
	}
	if bad := verdicts(t, f, f.Publisher); len(bad) > 0 {
		t.Errorf("%+v", bad)
	}

	f.Now = f.Now.Add(time.Second)
	if r = f.publish(nodes("3", "3", "3")[1:], Options{}); len(r.Kept) != 0 || !slices.Equal(r.Left, []string{"n0"}) {
		t.Errorf("nobody keeps it: %+v", r)
	}
}
