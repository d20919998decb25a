// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// A node whose earlier layer is gone, or on the reject list, stays as it is, and what is
// missing is named once for all such nodes. The others go back.
func TestBackWithoutItsLayer(t *testing.T) {
	f := newFleet(t)
	here, gone := f.layer("1", "default", f.release).Digest, "sha256:"+strings.Repeat("0", 64)
	nodes := func(value string, layers ...string) (all []Node) {
		for i, l := range layers {
			all = append(all, f.nodes(l, value, value, value)[i])
		}
		return all
	}
	named := Options{LayerNamed: true}
	f.publish(nodes("10", here, gone, gone), named)
	given := map[string]string{}
	for _, n := range f.publish(nodes("20", here, here, here), named).Published {
		given[n.Node] = n.Overlay
	}
	back := func() *Back {
		t.Helper()
		fleet, err := f.Read(t.Context(), f.policy)
		if err != nil {
			t.Fatal(err)
		}
		b, err := fleet.Back(t.Context(), given, spec.Floor{Generation: 1})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := back()
	if len(b.todo) != 1 || b.todo[0].name != "n0" || len(b.Stay) != 2 || !strings.HasPrefix(b.Stay["n2"], "it cannot go back: layer "+gone) {
		t.Errorf("%d go back, %v stay", len(b.todo), b.Stay)
	}
	if b.Lost == nil || !strings.Contains(b.Lost.Error(), gone) || !strings.Contains(b.Lost.Error(), "(node n1 and 1 more)") {
		t.Errorf("lost: %v", b.Lost)
	}
	if _, err := f.Refresh(t.Context(), Lists{Reject: []string{here}}); err != nil {
		t.Fatal(err)
	}
	if b = back(); len(b.todo) != 0 || !strings.Contains(b.Stay["n0"], "is on the reject list") || refusal.Of(b.Lost) != "" {
		t.Errorf("of what is rejected: %d go back, %v stay, %v", len(b.todo), b.Stay, b.Lost)
	}
}
