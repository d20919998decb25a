// SPDX-License-Identifier: Apache-2.0

package rotate

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fleettest"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// rotated is a fleet with a chain of keys, on which three nodes have the value 10.
type rotated struct {
	*fleettest.Fleet
	root  *ecdsa.PrivateKey
	fresh *ecdsa.PrivateKey // the operator that is to count
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := sign.Generate()
	must(t, err)
	return key
}

func newRotated(t *testing.T, at string, l *fleettest.Line) *rotated {
	t.Helper()
	r := &rotated{Fleet: fleettest.New(t), root: newKey(t), fresh: newKey(t)}
	var err error
	if at != "" {
		r.Registry, err = registry.Open(at, registry.Options{PlainHTTP: true})
		must(t, err)
	}
	r.Policy.Root, r.Policy.RootThreshold = []sign.Verifier{sign.VerifierOf(r.root)}, 1
	one := spec.Keys{APIVersion: spec.APIVersion, Kind: spec.KindKeys, Fleet: r.Policy.Fleet, Version: 1, Roles: r.Policy.Roles(), At: fleettest.Start}
	c, err := SignKeys(one, []crypto.Signer{r.root})
	must(t, err)
	r.Policy.Chain, err = chain.First(c)
	must(t, err)
	r.Trust, r.NewFleet = &r.Policy, true
	if l != nil {
		r.Later(l)
	}
	must(t, r.Gives(t.Context(), "10", publish.Options{}))
	r.NewFleet = false
	return r
}

// rotate has the fresh operator count; those that sign are given.
func (r *rotated) rotate(ctx context.Context, by ...crypto.Signer) (*chain.Chain, error) {
	q := *r.Publisher
	q.Signers = by
	next := r.Policy
	next.Operator = []sign.Verifier{sign.VerifierOf(r.fresh)}
	c, _, err := Keys(ctx, &q, r.Policy, Rotation{Next: spec.Keys{Roles: next.Roles(), At: fleettest.Start}, Root: []crypto.Signer{r.root}})
	return c, err
}

// boots has each node boot, without a disk: with boot files of version 1, as a loader that
// follows the chain and as one that does not see its newest version yet.
func (r *rotated) boots() error {
	for i := range 3 {
		name := fmt.Sprintf("n%d", i)
		candidate, err := trust.Overlay(r.T.Context(), r.Registry.Source(), []string{name}, "")
		if err != nil {
			return err
		}
		c := r.Policy.Chain.Fork()
		if err := c.Walk(r.T.Context(), r.Registry.Source(), func(chain.Link) error { return nil }); err != nil {
			return err
		}
		// A loader asks for the keys first, then for the rest: the version before is what it has
		// when a new one is published between the two.
		for _, k := range []spec.Keys{c.Newest().Keys, c.Links()[0].Keys} {
			b := chain.With(spec.Bootstrap{Fleet: r.Policy.Fleet}, k)
			if _, err := trust.All().Accept(candidate, b, trust.Identity{Node: name, MACs: []string{fmt.Sprintf("52:54:00:00:00:%02x", i)}}, trust.Clock{RTC: r.Now}, trust.Known{}); err != nil {
				return fmt.Errorf("node %s, which knows version %d: %w", name, k.Version, err)
			}
		}
	}
	return nil
}

// TestRotate: the operator's key of the version before is at hand, or lost.
func TestRotate(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost %v", lost), func(t *testing.T) {
			r := newRotated(t, "", nil)
			by := []crypto.Signer{r.fresh}
			if !lost {
				by = append(by, r.Operator)
			}
			c, err := r.rotate(t.Context(), by...)
			must(t, err)
			must(t, r.boots())
			if c.Version() != 2 || len(c.Links()) != 2 {
				t.Errorf("version %d", c.Version())
			}
			// The key that left signs nothing any more; the site's new one goes on.
			if err := r.Gives(t.Context(), "20", publish.Options{}); err == nil || !strings.Contains(err.Error(), "other keys than version 2") {
				t.Errorf("published with the keys of version 1: %v", err)
			}
			old := *r.Publisher
			old.Trust = &published.Policy{Operator: r.Policy.Operator, Threshold: 1}
			if _, err := old.Refresh(t.Context(), publish.Lists{}); err == nil {
				t.Error("who does not follow the keys signed by those of version 1")
			}
			r.Policy.Operator, r.Signers = []sign.Verifier{sign.VerifierOf(r.fresh)}, []crypto.Signer{r.fresh}
			must(t, r.Gives(t.Context(), "20", publish.Options{}))
			r.IsGreen(r.Values())
			current, err := trust.Current(t.Context(), r.Registry.Source(), "")
			must(t, err)
			var doc spec.Fleet
			must(t, spec.Decode(current.Document, &doc))
			if doc.KeysVersion != 2 {
				t.Errorf("fleet:current names version %d", doc.KeysVersion)
			}
		})
	}
}

// TestRotateRefuses what would lose nodes, or nobody could follow, before anything is written.
func TestRotateRefuses(t *testing.T) {
	r := newRotated(t, "", nil)
	stranger := newKey(t)
	for _, c := range []struct {
		name   string
		by     []crypto.Signer
		root   []crypto.Signer
		change func(*spec.Roles)
		want   string
	}{
		{"a stranger signs", []crypto.Signer{stranger}, []crypto.Signer{r.root}, nil, "not an operator key"},
		{"nobody of the next version signs", []crypto.Signer{r.Operator}, []crypto.Signer{r.root}, nil, "none of the new operator keys was given; needed: 1"},
		{"the root key of a stranger", []crypto.Signer{r.fresh}, []crypto.Signer{stranger}, nil, "not trusted"},
		{"another release key that signs nothing", []crypto.Signer{r.fresh}, []crypto.Signer{r.root},
			func(k *spec.Roles) {
				k.Release = (&published.Policy{Release: []sign.Verifier{sign.VerifierOf(stranger)}}).Roles().Release
			}, "layers must be signed"},
		{"a key in two roles", []crypto.Signer{r.fresh}, []crypto.Signer{r.root}, func(k *spec.Roles) { k.Release = k.Operator }, "has two roles"},
	} {
		q := *r.Publisher
		q.Signers = c.by
		next := r.Policy
		next.Operator = []sign.Verifier{sign.VerifierOf(r.fresh)}
		roles := next.Roles()
		if c.change != nil {
			c.change(&roles)
		}
		_, _, err := Keys(t.Context(), &q, r.Policy, Rotation{Next: spec.Keys{Roles: roles, At: fleettest.Start}, Root: c.root})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := r.Registry.Source().Manifest(t.Context(), oci.RepoFleet, trust.KeysTag(2), ""); !errors.Is(err, oci.ErrNotFound) {
			t.Fatalf("%s: version 2 is published: %v", c.name, err)
		}
	}
	must(t, r.boots())
}

// TestRotateRelease: a layer that only the key before signed can be pinned again.
func TestRotateRelease(t *testing.T) {
	r := newRotated(t, "", nil)
	layer := r.Layer("1", "", r.Release)
	must(t, func() error {
		_, err := r.Publish(t.Context(), r.Policy, r.Nodes(layer.Digest, "10", "10", "10"), publish.Options{LayerNamed: true})
		return err
	}())
	fresh := newKey(t)
	next := r.Policy
	next.Release = []sign.Verifier{sign.VerifierOf(fresh)}
	if err := release.Verify(t.Context(), r.Registry, layer.Digest, next.Release); refusal.Of(err) != refusal.UnknownKey {
		t.Fatal(err)
	}
	_, _, err := Keys(t.Context(), r.Publisher, r.Policy, Rotation{Next: spec.Keys{Roles: next.Roles(), At: fleettest.Start}, Root: []crypto.Signer{r.root}, Release: fresh})
	must(t, err)
	must(t, release.Verify(t.Context(), r.Registry, layer.Digest, next.Release))
	must(t, release.Verify(t.Context(), r.Registry, layer.Digest, r.Policy.Release))
	must(t, r.boots())
}

// TestRotateEpoch: the epoch that the fleet is at is permitted by a key of the version that is
// to count, so every node takes what is published, whichever version it knows.
func TestRotateEpoch(t *testing.T) {
	r := newRotated(t, "", nil)
	fresh := newKey(t)
	must(t, r.Gives(t.Context(), "10", publish.Options{Epoch: 3, EpochKey: r.Top}))
	must(t, r.boots())

	next := r.Policy
	next.Epoch = []sign.Verifier{sign.VerifierOf(fresh)}
	rotation := Rotation{Next: spec.Keys{Roles: next.Roles(), Revoked: []string{sign.VerifierOf(r.Top).ID()}, At: fleettest.Start}, Root: []crypto.Signer{r.root}}
	for name, key := range map[string]crypto.Signer{"no key": nil, "the key that leaves": r.Top, "an operator": r.Operator} {
		rotation.Epoch = key
		if _, _, err := Keys(t.Context(), r.Publisher, r.Policy, rotation); err == nil || cli.HintOf(err) == "" {
			t.Errorf("%s permits the epoch: %v", name, err)
		}
	}
	rotation.Epoch = fresh
	c2, _, err := Keys(t.Context(), r.Publisher, r.Policy, rotation)
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

// TestAWithheldVersion: a publisher does not go on with keys that may be revoked.
func TestAWithheldVersion(t *testing.T) {
	r := newRotated(t, "", nil)
	before := r.Policy
	_, err := r.rotate(t.Context(), r.fresh, r.Operator)
	must(t, err)
	must(t, r.Registry.Untag(t.Context(), oci.RepoFleet, trust.KeysTag(2)))
	_, err = r.Read(t.Context(), before)
	if refusal.Of(err) != refusal.KeysBehind {
		t.Errorf("Read = %v", err)
	}
}

// TestRotateCutSomewhere cuts rotations of all kinds at some requests; at each, every node
// boots, with the version before and with the newest, and the same rotation ends it. One node
// is frozen and one pinned to a layer that the release key of before signed.
func TestRotateCutSomewhere(t *testing.T) { rotateEverywhere(t, 17) }

// The same at every request.
func TestLongRotateCutEverywhere(t *testing.T) {
	require.Long(t)
	rotateEverywhere(t, 1)
}

func rotateEverywhere(t *testing.T, more int) {
	require.Slow(t)
	server := registrytest.WithReferrers(t)
	for _, c := range []struct {
		name   string
		epoch  bool // the fleet is at epoch 1
		lost   bool // the operator's key of before
		change func(*rotated) func(*published.Policy, *Rotation)
	}{
		{"operator", false, false, func(r *rotated) func(*published.Policy, *Rotation) { return operators(false, r.fresh) }},
		{"operator-lost", false, true, func(r *rotated) func(*published.Policy, *Rotation) { return operators(false, r.fresh) }},
		{"operator-revoked", true, true, func(r *rotated) func(*published.Policy, *Rotation) { return operators(true, r.fresh) }},
		{"release", false, false, func(r *rotated) func(*published.Policy, *Rotation) {
			key := newKey(t)
			return func(next *published.Policy, rotation *Rotation) {
				next.Release, rotation.Release = []sign.Verifier{sign.VerifierOf(key)}, key
			}
		}},
		{"release-and-epoch-revoked", true, true, func(r *rotated) func(*published.Policy, *Rotation) {
			key, top := newKey(t), newKey(t)
			return func(next *published.Policy, rotation *Rotation) {
				for _, k := range slices.Concat(next.Release, next.Epoch) {
					if id := k.ID(); id != sign.VerifierOf(key).ID() && id != sign.VerifierOf(top).ID() {
						rotation.Next.Revoked = append(rotation.Next.Revoked, id)
					}
				}
				operators(true, r.fresh)(next, rotation)
				next.Release, rotation.Release = []sign.Verifier{sign.VerifierOf(key)}, key
				next.Epoch, rotation.Epoch = []sign.Verifier{sign.VerifierOf(top)}, top
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, cuts := fleettest.NewLine(t, server), 0
			for request := 1; ; request += more {
				r := newRotated(t, fmt.Sprintf("%s/%s-%d", l.At, c.name, request), l)
				old := r.mixed(l, c.epoch)
				change, by := c.change(r), []crypto.Signer{r.fresh}
				switch {
				case c.name == "release":
					by = []crypto.Signer{r.Operator}
				case !c.lost:
					by = append(by, r.Operator)
				}
				r.Later(l)
				ctx, kill := context.WithCancel(t.Context())
				if request%2 == 1 {
					kill = func() {} // it lives
				}
				mend := l.CutAt(request, kill)
				cut := r.goOn(ctx, by, change)
				must(t, mend())
				kill()
				sound := func(when string) {
					t.Helper()
					if err := r.boots(); err != nil {
						t.Fatalf("cut at request %d with %v%s: %v", request, cut, when, err)
					}
					now, err := r.Follow(t.Context(), r.Policy, false)
					must(t, err)
					if err := release.Verify(t.Context(), r.Registry, old, now.Release); err != nil {
						t.Fatalf("cut at request %d with %v%s: no node can be pinned: %v", request, cut, when, err)
					}
				}
				sound("")
				if cut != nil {
					cuts++
					r.Later(l)
					if err := r.goOn(t.Context(), by, change); err != nil || r.Policy.Chain.Version() != 2 {
						t.Fatalf("cut at request %d with %v; again: version %d, %v", request, cut, r.Policy.Chain.Version(), err)
					}
					sound(", and again")
				}
				r.Later(l)
				r.Signers = by[:1]
				_, err := hold.Pin(t.Context(), r.Publisher, hold.Order{Nodes: []string{"n0"}}, old)
				must(t, err)
				if revoked := len(r.Policy.Revoked()) > 0; !revoked {
					must(t, r.rollsBack("1"))
				}
				r.IsGreen(r.Values())
				if cut == nil {
					break
				}
			}
			t.Logf("%d cuts", cuts)
			if cuts < 30/more {
				t.Errorf("%d cuts: it is shorter than it was", cuts)
			}
		})
	}
}

// mixed gives the nodes another layer than the one that it returns, which n0 had before; n1 is
// frozen at it, and n2 pinned to it.
func (r *rotated) mixed(l *fleettest.Line, epoch bool) (old string) {
	r.T.Helper()
	old, second := r.following("1"), r.following("2")
	for i, layer := range []string{old, second} {
		value, o := fmt.Sprint(20+i), publish.Options{LayerNamed: true}
		if epoch && i == 0 {
			o.Epoch, o.EpochKey = 1, r.Top
		}
		r.Later(l)
		_, err := r.Publish(r.T.Context(), r.Policy, r.Nodes(layer, value, value, value), o)
		must(r.T, err)
		if i == 0 {
			r.Later(l)
			_, err = hold.Freeze(r.T.Context(), r.Publisher, hold.Order{Nodes: []string{"n1"}})
			must(r.T, err)
		}
	}
	r.Later(l)
	_, err := hold.Pin(r.T.Context(), r.Publisher, hold.Order{Nodes: []string{"n2"}}, old)
	must(r.T, err)
	return old
}

// A version that revokes a key which has left before, and changes no role, is a version: it is
// not taken for the end of the one before that was cut.
func TestRevokeWhatHasLeft(t *testing.T) {
	r := newRotated(t, "", nil)
	_, err := r.rotate(t.Context(), r.fresh, r.Operator)
	must(t, err)
	now, err := r.Follow(t.Context(), r.Policy, false)
	must(t, err)
	q := *r.Publisher
	q.Signers = []crypto.Signer{r.fresh}
	next := spec.Keys{Roles: now.Roles(), Revoked: []string{sign.VerifierOf(r.Operator).ID()}, At: fleettest.Start}
	for range 2 { // the second time it is there
		c, _, err := Keys(t.Context(), &q, r.Policy, Rotation{Next: next, Root: []crypto.Signer{r.root}})
		must(t, err)
		if newest := c.Newest().Keys; newest.Version != 3 || len(newest.Revoked) != 1 {
			t.Errorf("version %d revokes %q", newest.Version, newest.Revoked)
		}
	}
}

// Keys of a later release count for what this one knows; it writes no next version, which
// would lose the rest.
func TestKeysOfALaterRelease(t *testing.T) {
	r := newRotated(t, "", nil)
	one, err := spec.Encode(r.Policy.Chain.Newest().Keys)
	must(t, err)
	later := trust.Candidate{Document: slices.Concat(one[:len(one)-1], []byte(`,"laterKey":7}`))}
	bundle, err := sign.SignKeys(r.root, oci.Digest(later.Document), sign.KeysPredicate{Fleet: r.Policy.Fleet, Version: 1, IssuedAt: fleettest.Start})
	must(t, err)
	later.Bundles = [][]byte{bundle}
	r.Policy.Chain, err = chain.First(later)
	must(t, err)
	_, err = r.rotate(t.Context(), r.fresh, r.Operator)
	if refusal.Of(err) != refusal.NeedsAgent || !strings.Contains(err.Error(), "version 1 of the keys has laterKey") || cli.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	if _, err := r.Registry.Source().Manifest(t.Context(), oci.RepoFleet, trust.KeysTag(2), ""); !errors.Is(err, oci.ErrNotFound) {
		t.Errorf("version 2 is published: %v", err)
	}
}
