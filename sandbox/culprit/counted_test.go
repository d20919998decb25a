// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"crypto"
	"crypto/ecdsa"
	"slices"
	"strconv"
	"testing"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/rotate"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// What only a key signed that was revoked is compared with nothing: the first that counts and has the same brings it.
func TestCounted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		signers string // of each generation; a is revoked after the last
		gives   string // what the node has in it
		kept    []int  // of these, the numbers from 1
	}{
		{"bbbb", "1223", []int{1, 2, 4}},
		{"babb", "1223", []int{1, 3, 4}},
		{"aabb", "1223", []int{3, 4}},
		{"babb", "1213", []int{1, 4}},
		{"baab", "1231", []int{1}},
	} {
		f, root, a, b := newShelf(t), fixture.NewKey(t), fixture.NewKey(t), fixture.NewKey(t)
		f.policy.Operator = []sign.Verifier{sign.VerifierOf(a), sign.VerifierOf(b)}
		f.policy.Root, f.policy.RootThreshold = []sign.Verifier{sign.VerifierOf(root)}, 1
		one, err := rotate.SignKeys(spec.Keys{APIVersion: spec.APIVersion, Kind: spec.KindKeys, Fleet: "f", Version: 1, Roles: f.policy.Roles(), At: f.p.Now}, []crypto.Signer{root})
		if err == nil {
			f.policy.Chain, err = chain.First(one)
		}
		if err != nil {
			t.Fatal(err)
		}
		layer := pushed(t, f.registry, "1", nil)
		for i, by := range test.signers {
			f.p.Signers = []crypto.Signer{map[rune]*ecdsa.PrivateKey{'a': a, 'b': b}[by]}
			other := fixture.Overlay(func(o *spec.Overlay) { o.Node, o.Items.Sysctl[0].Value = "m", strconv.Itoa(i) }) // has each publish change something
			f.publish(t, fixture.Overlay(func(o *spec.Overlay) { o.Items.Sysctl[0].Value = test.gives[i : i+1] }), layer, publish.By{}, other)
		}
		next := f.policy
		next.Operator = f.policy.Operator[1:]
		c, _, err := rotate.Keys(t.Context(), f.p, f.policy, rotate.Rotation{Root: []crypto.Signer{root},
			Next: spec.Keys{Revoked: []string{f.policy.Operator[0].ID()}, At: f.p.Now, Roles: next.Roles()}})
		if err != nil {
			t.Fatal(err)
		}
		f.policy, f.policy.Chain = next, c
		n := f.node(t, "")
		if err := n.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, e := range n.kept {
			got = append(got, int(e.Generation.Number))
		}
		if !slices.Equal(got, test.kept) {
			t.Errorf("%s by %s: %v, want %v", test.gives, test.signers, got, test.kept)
		}
	}
}
