// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"crypto"
	"strings"
	"testing"

	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/rotate"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fleettest"
)

// A node whose earlier layer is gone, or on the reject list, stays as it is, and what is
// missing is named once for all such nodes. The others go back.
func TestBackWithoutItsLayer(t *testing.T) {
	f := newFleet(t)
	here, gone := f.Layer("1", "default", f.Release).Digest, "sha256:"+strings.Repeat("0", 64)
	nodes := func(value string, layers ...string) (all []Node) {
		for i, l := range layers {
			all = append(all, f.Nodes(l, value, value, value)[i])
		}
		return all
	}
	named := Options{LayerNamed: true}
	f.MustPublish(nodes("10", here, gone, gone), named)
	given := map[string]string{}
	for _, n := range f.MustPublish(nodes("20", here, here, here), named).Published {
		given[n.Node] = n.Overlay
	}
	back := func() *Back {
		t.Helper()
		fleet, err := f.Read(t.Context(), f.Policy)
		if err != nil {
			t.Fatal(err)
		}
		b, err := ReadyBack(t.Context(), fleet, given, spec.Floor{Generation: 1})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := back()
	if len(b.Todo()) != 1 || b.Todo()[0].Name != "n0" || len(b.Stay) != 2 || !strings.HasPrefix(b.Stay["n2"], "it cannot go back: layer:"+gone) {
		t.Errorf("%d go back, %v stay", len(b.Todo()), b.Stay)
	}
	if b.Lost == nil || !strings.Contains(b.Lost.Error(), gone) || !strings.Contains(b.Lost.Error(), "(node n1 and 1 more)") {
		t.Errorf("lost: %v", b.Lost)
	}
	if _, err := f.Refresh(t.Context(), Lists{Reject: []string{here}}); err != nil {
		t.Fatal(err)
	}
	if b = back(); len(b.Todo()) != 0 || !strings.Contains(b.Stay["n0"], "is on the reject list") || refusal.Of(b.Lost) != "" {
		t.Errorf("of what is rejected: %d go back, %v stay, %v", len(b.Todo()), b.Stay, b.Lost)
	}
}

// TestRotateEpoch: the epoch that the fleet is at is permitted by a key of the version that is
// to count, so every node takes what is published, whichever version it knows.
func TestRotateEpoch(t *testing.T) {
	r := newRotated(t, "", nil)
	fresh := newKey(t)
	must(t, r.Gives(t.Context(), "10", Options{Epoch: 3, EpochKey: r.Top}))
	must(t, r.boots())

	next := r.Policy
	next.Epoch = []sign.Verifier{sign.VerifierOf(fresh)}
	rotation := rotate.Rotation{Next: spec.Keys{Roles: next.Roles(), Revoked: []string{sign.VerifierOf(r.Top).ID()}, At: fleettest.Start}, Root: []crypto.Signer{r.root}}
	for name, key := range map[string]crypto.Signer{"no key": nil, "the key that leaves": r.Top, "an operator": r.Operator} {
		rotation.Epoch = key
		if _, _, err := rotate.Keys(t.Context(), r.Publisher, r.Policy, rotation); err == nil || cli.HintOf(err) == "" {
			t.Errorf("%s permits the epoch: %v", name, err)
		}
	}
	rotation.Epoch = fresh
	c2, _, err := rotate.Keys(t.Context(), r.Publisher, r.Policy, rotation)
	must(t, err)
	must(t, r.boots())

	// Who knows the new version takes no word of the key that left.
	candidate, err := trust.Overlay(t.Context(), r.Registry.Source(), []string{"n0"}, "")
	must(t, err)
	b := chain.With(spec.Bootstrap{Fleet: r.Policy.Fleet}, c2.Newest().Keys)
	id := trust.Identity{Node: "n0", MACs: []string{"52:54:00:00:00:00"}}
	accepted, err := trust.All().Accept(candidate, b, id, trust.Clock{RTC: r.Now}, trust.Known{})
	must(t, err)
	if accepted.Floor.Epoch != 3 {
		t.Errorf("epoch %d", accepted.Floor.Epoch)
	}
	b.EpochKeys = sign.PEMs([]sign.Verifier{sign.VerifierOf(newKey(t))})
	if _, err := trust.All().Accept(candidate, b, id, trust.Clock{RTC: r.Now}, trust.Known{}); refusal.Of(err) == "" {
		t.Errorf("a node takes the epoch by a key that it does not know: %v", err)
	}
}
