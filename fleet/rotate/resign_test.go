// SPDX-License-Identifier: Apache-2.0

package rotate

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fleettest"
)

// goOn makes a version of the keys count that change makes of the present one, and the site and
// the signers follow it.
func (r *rotated) goOn(ctx context.Context, by []crypto.Signer, change func(*published.Policy, *Rotation)) error {
	r.T.Helper()
	now, err := r.Follow(ctx, r.Policy, false)
	if err != nil {
		return err
	}
	next := now
	rotation := Rotation{Root: []crypto.Signer{r.root}, Next: spec.Keys{Revoked: slices.Clone(now.Chain.Newest().Keys.Revoked), At: fleettest.Start}}
	change(&next, &rotation)
	rotation.Next.Roles = next.Roles()
	q := *r.Publisher
	q.Signers = by
	c, _, err := Keys(ctx, &q, r.Policy, rotation)
	if err == nil {
		next.Chain = c
		r.Policy = next
	}
	return err
}

// operators makes operators count in the next version; those that leave are revoked where
// that is said.
func operators(revoke bool, keys ...*ecdsa.PrivateKey) func(*published.Policy, *Rotation) {
	return func(next *published.Policy, rotation *Rotation) {
		was := next.Operator
		next.Operator = nil
		for _, k := range keys {
			next.Operator = append(next.Operator, sign.VerifierOf(k))
		}
		if !revoke {
			return
		}
		for _, k := range was {
			if !slices.ContainsFunc(next.Operator, func(o sign.Verifier) bool { return o.ID() == k.ID() }) {
				rotation.Next.Revoked = append(rotation.Next.Revoked, k.ID())
			}
		}
		slices.Sort(rotation.Next.Revoked)
	}
}

// following returns a layer whose agent follows the keys.
func (r *rotated) following(version string) string {
	r.T.Helper()
	return r.LayerAs(spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "metal-a", Version: version, Arch: "amd64",
		Features: []string{spec.KeyChainFeature}, Images: []spec.Image{}}, r.Release).Digest
}

// rollsBack rolls the nodes back to a generation.
func (r *rotated) rollsBack(to string) error {
	_, err := hold.Rollback(r.T.Context(), r.Publisher, hold.Order{All: true}, to)
	return err
}

// Nodes go back to generations from before rotations, however many, and to layers that only
// they name and that earlier release keys signed.
func TestRollbackAcrossRotations(t *testing.T) {
	r := newRotated(t, "", nil)
	first, second := r.following("1"), r.following("2")
	give := func(layer, value string) {
		t.Helper()
		r.Now = r.Now.Add(time.Minute)
		_, err := r.Publish(t.Context(), r.Policy, r.Nodes(layer, value, value, value), publish.Options{LayerNamed: true})
		must(t, err)
	}
	give(first, "20")
	for _, v := range []string{"30", "40"} { // the rows have forgotten the first layer since
		give(second, v)
	}
	issued := func() time.Time {
		t.Helper()
		f, err := r.Look(t.Context())
		must(t, err)
		past, err := f.Past(t.Context(), published.Generation{Number: 2})
		must(t, err)
		return past.Said.IssuedAt
	}
	was := issued()
	operator, releases := r.fresh, []*ecdsa.PrivateKey{newKey(t), newKey(t)}
	must(t, r.goOn(t.Context(), []crypto.Signer{operator}, operators(false, operator))) // the key before is lost
	r.Signers = []crypto.Signer{operator}
	for i, fresh := range releases { // of the operators, then of releases twice
		again := newKey(t)
		must(t, r.goOn(t.Context(), []crypto.Signer{again}, func(next *published.Policy, rotation *Rotation) {
			operators(false, again)(next, rotation)
			next.Release, rotation.Release = []sign.Verifier{sign.VerifierOf(fresh)}, fresh
		}))
		r.Signers = []crypto.Signer{again}
		if err := release.Verify(t.Context(), r.Registry, first, r.Policy.Release); err != nil {
			t.Errorf("after rotation %d: %v", i+2, err)
		}
	}
	if now := issued(); !now.Equal(was) {
		t.Errorf("generation 2 was issued at %s, and is said to be at %s since", was, now)
	}
	for to, value := range map[string]string{"1": "10", "2": "20", "3": "30"} {
		must(t, r.rollsBack(to))
		r.IsGreen(r.Values())
		if got := strings.Fields(r.Values())[0]; got != value {
			t.Errorf("rolled back to %s: %s", to, got)
		}
		_, err := hold.Forward(t.Context(), r.Publisher, hold.Order{All: true})
		must(t, err)
	}
	give(second, "50")
	r.IsGreen(r.Values())
}

// What only a stolen key signed is not made the fleet's word: neither a generation, which the
// thief can make of any age, nor what is current of the layers, unless the publisher has seen
// it before. Nodes go back to what the index says that they had.
func TestRevokedSignNothingForGood(t *testing.T) {
	r := newRotated(t, "", nil)
	layer := r.following("1")
	given := map[string]string{}
	res, err := r.Publish(t.Context(), r.Policy, r.Nodes(layer, "20", "20", "20"), publish.Options{LayerNamed: true})
	must(t, err)
	for _, n := range res.Published {
		given[n.Node] = n.Overlay
	}
	var said []string
	r.Say = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	must(t, r.goOn(t.Context(), []crypto.Signer{r.fresh}, operators(true, r.fresh)))
	if !slices.ContainsFunc(said, func(s string) bool {
		return strings.HasPrefix(s, "generations 0-1 are not signed again, and no node can go back to them: ")
	}) {
		t.Errorf("%q", said)
	}
	r.Signers = []crypto.Signer{r.fresh}
	if err := r.rollsBack("1"); refusal.Of(err) != refusal.UnknownKey {
		t.Errorf("rolled back to what a thief may have made: %v", err)
	}
	f, err := r.Read(t.Context(), r.Policy)
	must(t, err)
	b, err := hold.ReadyBack(t.Context(), f, given, spec.Floor{Generation: 1})
	must(t, err)
	if len(b.Work) != 3 || b.Lost != nil || len(b.Stay) > 0 {
		t.Errorf("%d go back, %v stay, lost: %v", len(b.Work), b.Stay, b.Lost)
	}
	must(t, r.rollsBack("")) // each to what it had before
	if got := strings.Fields(r.Values())[0]; got != "10" {
		t.Errorf("rolled back: %s", got)
	}
	r.IsGreen(r.Values())
}

// Where enough of those stay who have signed a generation, it stays one to go back to after
// one of them was revoked.
func TestRevokedOneOfTwo(t *testing.T) {
	r := newRotated(t, "", nil)
	both := func(next *published.Policy, rotation *Rotation) {
		operators(false, r.Operator, r.fresh)(next, rotation)
	}
	r.Signers = []crypto.Signer{r.Operator, r.fresh}
	must(t, r.goOn(t.Context(), r.Signers, both))
	must(t, r.Gives(t.Context(), "20", publish.Options{}))
	third := newKey(t)
	must(t, r.goOn(t.Context(), []crypto.Signer{third, r.fresh}, operators(true, r.fresh, third)))
	r.Signers = []crypto.Signer{third}
	must(t, r.rollsBack("1"))
	if got := strings.Fields(r.Values())[0]; got != "10" {
		t.Errorf("rolled back: %s", got)
	}
	r.IsGreen(r.Values())
}

// A rotation goes on from one that was cut before fleet:current named its version, and is ended
// by the same call where it was cut there itself.
func TestRotateAfterOneThatWasCut(t *testing.T) {
	r := newRotated(t, "", nil)
	place := r.Registry.Ref().String()
	resp, err := r.Registry.Source().Manifest(t.Context(), oci.RepoFleet, "current", "")
	must(t, err)
	seen, _ := r.Memory.At(place)
	for range 2 {
		key := newKey(t)
		must(t, r.goOn(t.Context(), []crypto.Signer{key}, operators(false, key)))
		_, err := r.Registry.PutManifest(t.Context(), oci.RepoFleet, oci.MediaTypeManifest, resp.Data, "current")
		must(t, err)
		must(t, r.Memory.Set(place, seen))
		r.Signers = []crypto.Signer{key}
	}
	must(t, r.goOn(t.Context(), r.Signers, func(*published.Policy, *Rotation) {})) // of version 1, which is two behind
	r.IsGreen(r.Values())
}

// What a thief put in the place of fleet:current does not become the fleet's word by a rotation
// that is called again: the list of what nodes must not run would be the thief's.
func TestAThiefsCurrentIsNotTakenUp(t *testing.T) {
	r := newRotated(t, "", nil)
	bad := "sha256:" + strings.Repeat("a", 64)
	must(t, r.goOn(t.Context(), []crypto.Signer{r.fresh}, operators(true, r.fresh)))
	thief := r.Publisher
	r.Publisher = &publish.Publisher{Reader: published.Reader{Registry: thief.Registry, Signers: []crypto.Signer{r.fresh}, Now: r.Now.Add(time.Minute), Say: t.Logf, Trust: &r.Policy, Memory: thief.Memory}}
	_, err := r.Refresh(t.Context(), publish.Lists{Unseen: true, Reject: []string{bad}})
	must(t, err)
	x, err := r.Index()
	must(t, err)
	forger := *thief // with the key that was revoked
	forger.Now = r.Now.Add(time.Hour)
	raw, err := spec.Encode(spec.Fleet{APIVersion: spec.APIVersion, Kind: spec.KindFleet, Fleet: "metal-a", Minimum: spec.Floor{Epoch: x.Epoch, Generation: 1}, KeysVersion: 1})
	must(t, err)
	bundle, err := sign.SignFleet(r.Operator, oci.Digest(raw), sign.PredicateFleet, sign.FleetPredicate{Fleet: "metal-a", IssuedAt: forger.Now, Expires: forger.Now.Add(time.Hour)})
	must(t, err)
	_, err = forger.PutSigned(t.Context(), oci.TypeFleet, raw, []string{"current"}, bundle)
	must(t, err)
	r.Now = forger.Now.Add(time.Minute)
	if err := r.goOn(t.Context(), r.Signers, func(*published.Policy, *Rotation) {}); !refusal.OfKeys(err) {
		t.Errorf("taken up: %v", err)
	}
}
