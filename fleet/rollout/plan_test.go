// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// The first wave is of nodes that change: one of those that do not tries nothing for the
// others.
func TestAShareOfWhatChanges(t *testing.T) {
	f := newFleet(t, layout(t), 12, "{waves: [{count: 1}, {percent: 25}], soak: 5m}")
	only := func(name string) bool { return name < "n00004" }
	f.value, f.p.Now = "2", f.now
	_, err := f.p.Publish(t.Context(), f.policy(), f.compile(), publish.Options{Only: only})
	must(t, err)
	plan, err := f.start("2")
	must(t, err)
	if w := plan.Waves; len(w) != 3 || len(w[0].Nodes) != 1 || w[0].Nodes["n00004"] == "" || len(w[1].Nodes) != 2 || len(w[2].Nodes) != 5 {
		t.Errorf("waves: %+v", w)
	}
}

// A rollout does not bring a layer that other nodes of the fleet run already, and a halt
// does not forbid it to all.
func TestWhatAPlanBrings(t *testing.T) {
	f := newFleet(t, layout(t), 2, "{waves: [{count: 1}]}")
	fleet, err := f.p.Read(t.Context(), f.policy())
	must(t, err)
	r, divide, err := f.site().Rollout("roll")
	must(t, err)
	old, new := oci.Digest([]byte("old")), oci.Digest([]byte("new"))
	o := Order{Name: "roll", Rule: r.Rule, Divide: divide}
	for _, name := range f.names {
		o.Nodes = append(o.Nodes, publish.Node{Name: name, Layer: new, Doc: func() ([]byte, error) { return []byte(name), nil }})
	}
	for other, want := range map[string]int{old: 1, new: 0} {
		plan, err := NewPlan(fleet, index.Rows{"n00000": {Layer: old}, "n00001": {Layer: old}, "other": spec.Published{Layer: other}}, o)
		must(t, err)
		if len(plan.Layers) != want {
			t.Errorf("another node runs %s: the plan brings %v", other, plan.Layers)
		}
	}
}

// What somebody agreed to starts in the place of what was published then, and of nothing else.
func TestStartsInThePlaceOf(t *testing.T) {
	f := newFleet(t, layout(t), 2, "{waves: [{count: 1}]}")
	fleet, err := f.p.Read(t.Context(), f.policy())
	must(t, err)
	from := fleet.Floor()
	f.value = "2"
	f.p.Now = f.now
	_, err = f.p.Publish(t.Context(), f.policy(), f.compile(), publish.Options{Only: func(name string) bool { return name == "n00001" }, From: &from})
	must(t, err)
	if _, err := f.p.Publish(t.Context(), f.policy(), f.compile(), publish.Options{From: &from}); err == nil || !strings.Contains(err.Error(), "was agreed to at generation 1") {
		t.Errorf("a publish in the place of what is published no more: %v", err)
	}
	o := f.order("2")
	o.From = &from
	if _, _, err := Start(t.Context(), &f.p, f.policy(), publish.By{}, o); err == nil || !strings.Contains(err.Error(), "was agreed to at generation 1") {
		t.Errorf("a rollout in the place of what is published no more: %v", err)
	}
	from.Generation++
	_, _, err = Start(t.Context(), &f.p, f.policy(), publish.By{}, o)
	must(t, err)
}
