// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"crypto"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/rotate"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
)

// roles are those of the fleet's policy.
func (f *fleet) roles() spec.Roles {
	policy := f.policy()
	return policy.Roles()
}

// rooted gives the fleet a root key, and a first version of its keys.
func (f *fleet) rooted(t *testing.T) {
	t.Helper()
	var err error
	f.root, err = sign.Generate()
	must(t, err)
	one, err := rotate.SignKeys(spec.Keys{APIVersion: spec.APIVersion, Kind: spec.KindKeys, Fleet: "metal", Version: 1,
		Roles: f.roles(), At: f.now}, []crypto.Signer{f.root})
	must(t, err)
	f.keys, err = chain.First(one)
	must(t, err)
}

// A rollout that began before the operator's key changed goes back as if it had not, and so
// does one whose key was stolen: the index says what its nodes had.
func TestUndoAcrossARotation(t *testing.T) {
	for _, revoke := range []bool{false, true} {
		t.Run(fmt.Sprintf("revoked %v", revoke), func(t *testing.T) {
			f := newFleet(t, layout(t), 12, threeWaves)
			f.rooted(t)
			f.publish()
			_, err := f.start("2")
			must(t, err)
			f.reach(2)
			f.steps(2)
			f.want(map[string]int{"1": 8, "2": 4})

			for range 2 {
				policy, before := f.policy(), sign.VerifierOf(f.key).ID()
				f.key, err = sign.Generate()
				must(t, err)
				next := rotate.Rotation{Next: spec.Keys{Roles: f.roles(), At: f.now}, Root: []crypto.Signer{f.root}}
				if next.Next.Revoked = slices.Clone(f.keys.Newest().Keys.Revoked); revoke {
					next.Next.Revoked = append(next.Next.Revoked, before)
					slices.Sort(next.Next.Revoked)
				}
				f.p.Signers, f.p.Now = []crypto.Signer{f.key}, f.now
				f.keys, _, err = rotate.Keys(t.Context(), &f.p, policy, next)
				must(t, err)
				f.obeys.Keys = []string{string(sign.VerifierOf(f.key).PEM())}
				f.tick(time.Minute)
			}
			f.do(Undo)
			f.tick(time.Minute)
			f.want(map[string]int{"1": 12})
		})
	}
}
