// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"crypto"
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
