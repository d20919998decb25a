// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"slices"
	"strconv"
	"testing"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// What only a key signed that counts no more is compared with nothing: the first that counts and has the same brings it.
func TestCounted(t *testing.T) {
	t.Parallel()
	a, b := fixture.NewKey(t), fixture.NewKey(t)
	for _, test := range []struct {
		signers string // of each generation
		gives   string // what the node has in it
		kept    []int  // of these, the numbers from 1
	}{
		{"bbbb", "1223", []int{1, 2, 4}},
		{"babb", "1223", []int{1, 3, 4}},
		{"aabb", "1223", []int{3, 4}},
		{"babb", "1213", []int{1, 4}},
		{"baab", "1231", []int{1}},
	} {
		f := newShelf(t)
		f.policy.Operator = []sign.Verifier{sign.VerifierOf(a), sign.VerifierOf(b)}
		layer := pushed(t, f.registry, "1", nil)
		for i, by := range test.signers {
			f.p.Signers[0] = b
			if by == 'a' {
				f.p.Signers[0] = a
			}
			other := overlay(func(o *spec.Overlay) { o.Node, o.Items.Sysctl[0].Value = "m", strconv.Itoa(i) }) // has each publish change something
			f.publish(t, overlay(func(o *spec.Overlay) { o.Items.Sysctl[0].Value = test.gives[i : i+1] }), layer, publish.By{}, other)
		}
		f.policy.Operator = f.policy.Operator[1:]
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
