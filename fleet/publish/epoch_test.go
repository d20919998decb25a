// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"crypto"
	"testing"

	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// TestRotateEpoch: the epoch that the fleet is at is permitted by a key of the version that is
// to count, so every node takes what is published, whichever version it knows.
func TestRotateEpoch(t *testing.T) {
	r := newRotated(t, "", nil)
	fresh := newKey(t)
	must(t, r.gives(t.Context(), "10", Options{Epoch: 3, EpochKey: r.top}))
	must(t, r.boots())

	next := r.policy
	next.Epoch = []sign.Verifier{sign.VerifierOf(fresh)}
	rotation := Rotation{Next: spec.Keys{Roles: next.Roles(), Revoked: []string{sign.VerifierOf(r.top).ID()}, At: start}, Root: []crypto.Signer{r.root}}
	for name, key := range map[string]crypto.Signer{"no key": nil, "the key that leaves": r.top, "an operator": r.operator} {
		rotation.Epoch = key
		if _, _, err := r.Rotate(t.Context(), r.policy, rotation); err == nil || hintOf(err) == "" {
			t.Errorf("%s permits the epoch: %v", name, err)
		}
	}
	rotation.Epoch = fresh
	c2, _, err := r.Rotate(t.Context(), r.policy, rotation)
	must(t, err)
	must(t, r.boots())

	// Who knows the new version takes no word of the key that left.
	candidate, err := trust.Overlay(t.Context(), r.Registry.Source(), []string{"n0"}, "")
	must(t, err)
	b := chain.With(spec.Bootstrap{Fleet: r.policy.Fleet}, c2.Newest().Keys)
	id := trust.Identity{Node: "n0", MACs: []string{"52:54:00:00:00:00"}}
	accepted, err := trust.All().Accept(candidate, b, id, spec.Floor{}, trust.Clock{RTC: r.Now}, trust.Known{})
	must(t, err)
	if accepted.Floor.Epoch != 3 {
		t.Errorf("epoch %d", accepted.Floor.Epoch)
	}
	b.EpochKeys = pems([]sign.Verifier{sign.VerifierOf(newKey(t))})
	if _, err := trust.All().Accept(candidate, b, id, spec.Floor{}, trust.Clock{RTC: r.Now}, trust.Known{}); refusal.Of(err) == "" {
		t.Errorf("a node takes the epoch by a key that it does not know: %v", err)
	}
}
