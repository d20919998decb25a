// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

var now = time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)

// keys are made once, by name.
var keys = map[string]*ecdsa.PrivateKey{}

func key(t testing.TB, name string) *ecdsa.PrivateKey {
	t.Helper()
	if keys[name] == nil {
		k, err := sign.Generate()
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = k
	}
	return keys[name]
}

func id(t testing.TB, name string) string { return sign.VerifierOf(key(t, name)).ID() }

func role(t testing.TB, threshold int, names ...string) spec.Role {
	r := spec.Role{Threshold: threshold}
	for _, name := range names {
		r.Keys = append(r.Keys, string(sign.VerifierOf(key(t, name)).PEM()))
	}
	return r
}

// first is a version 1 whose root is two of three keys.
func first(t testing.TB) spec.Keys {
	return spec.Keys{APIVersion: spec.APIVersion, Kind: spec.KindKeys, Fleet: "metal-a", Version: 1, At: now,
		Roles: spec.Roles{Root: role(t, 2, "root1", "root2", "root3"), Operator: role(t, 1, "operator1"), Release: role(t, 1, "release1")}}
}

// after is the version after k, changed.
func after(t testing.TB, k spec.Keys, change func(*spec.Keys)) spec.Keys {
	t.Helper()
	raw, err := spec.Encode(k)
	if err != nil {
		t.Fatal(err)
	}
	k.Version, k.Previous, k.Revoked = k.Version+1, oci.Digest(raw), slices.Clone(k.Revoked)
	if change != nil {
		change(&k)
	}
	return k
}

// signedBy is a candidate that the named keys have signed; of a name that stands twice
// there are two signatures.
func signedBy(t testing.TB, k spec.Keys, names ...string) trust.Candidate {
	t.Helper()
	raw, err := spec.Encode(k)
	if err != nil {
		t.Fatal(err)
	}
	c := trust.Candidate{Document: raw}
	for _, name := range names {
		b, err := sign.SignKeys(key(t, name), oci.Digest(raw), sign.KeysPredicate{Fleet: k.Fleet, Version: k.Version, IssuedAt: k.At})
		if err != nil {
			t.Fatal(err)
		}
		c.Bundles = append(c.Bundles, b)
	}
	return c
}

func begin(t testing.TB, k spec.Keys) *Chain {
	t.Helper()
	raw, err := spec.Encode(k)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Begin(raw)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// attempt is one version offered after version 1, and what becomes of it. The cases are
// those that updaters of roots are tested with: skips, forks, rollback, thresholds that
// are raised and lowered, keys with two roles, signatures counted twice.
type attempt struct {
	name    string
	change  func(t *testing.T, k *spec.Keys)
	signers []string
	spoil   func(t *testing.T, c *trust.Candidate)
	code    refusal.Code // "" is accepted
	without string       // the check that alone stops it
}

var attempts = []attempt{
	{name: "nothing but the number", signers: []string{"root1", "root2"}},
	{name: "another operator", change: func(t *testing.T, k *spec.Keys) { k.Roles.Operator = role(t, 1, "operator2") }, signers: []string{"root2", "root3"}},
	{name: "root rotated, signed by both", change: func(t *testing.T, k *spec.Keys) { k.Roles.Root = role(t, 1, "root9") }, signers: []string{"root1", "root2", "root9"}},
	{name: "threshold raised", change: func(t *testing.T, k *spec.Keys) { k.Roles.Root.Threshold = 3 }, signers: []string{"root1", "root2", "root3"}},
	{name: "threshold lowered by enough of the old", change: func(t *testing.T, k *spec.Keys) { k.Roles.Root.Threshold = 1 }, signers: []string{"root1", "root2"}},
	{name: "root rotated in part, by keys of both", change: func(t *testing.T, k *spec.Keys) { k.Roles.Root = role(t, 2, "root2", "root3", "root9") }, signers: []string{"root2", "root3"}},
	{name: "a signature of a stranger beside", signers: []string{"stranger", "root1", "root2"}},
	{name: "a key of a later release beside", spoil: func(t *testing.T, c *trust.Candidate) {
		*c = signedRaw(t, bytes.Replace(c.Document, []byte(`"at":`), []byte(`"note":"x","at":`), 1), "root1", "root2")
	}},

	{name: "nobody signed", code: refusal.Unsigned},
	{name: "one of two", signers: []string{"root1"}, code: refusal.Threshold},
	{name: "a signature counted twice", signers: []string{"root1", "root1"}, code: refusal.Threshold},
	{name: "an operator's key", signers: []string{"operator1", "operator1"}, code: refusal.UnknownKey},
	{name: "root rotated, signed by the new alone", change: func(t *testing.T, k *spec.Keys) { k.Roles.Root = role(t, 1, "root9") },
		signers: []string{"root9"}, code: refusal.UnknownKey, without: "keys: signed by the version before"},
	{name: "root rotated, signed by the old alone", change: func(t *testing.T, k *spec.Keys) { k.Roles.Root = role(t, 1, "root9") },
		signers: []string{"root1", "root2"}, code: refusal.UnknownKey, without: "keys: signed by itself"},
	{name: "threshold raised, too few of the new", change: func(t *testing.T, k *spec.Keys) { k.Roles.Root.Threshold = 3 },
		signers: []string{"root1", "root2"}, code: refusal.Threshold, without: "keys: signed by itself"},
	{name: "threshold raised, a signature counted twice", change: func(t *testing.T, k *spec.Keys) { k.Roles.Root.Threshold = 3 },
		signers: []string{"root1", "root2", "root2"}, code: refusal.Threshold, without: "keys: signed by itself"},
	{name: "root rotated in part, too few of the new", change: func(t *testing.T, k *spec.Keys) { k.Roles.Root = role(t, 2, "root2", "root3", "root9") },
		signers: []string{"root1", "root2"}, code: refusal.Threshold, without: "keys: signed by itself"},
	{name: "root rotated in part, too few of the old", change: func(t *testing.T, k *spec.Keys) { k.Roles.Root = role(t, 2, "root2", "root3", "root9") },
		signers: []string{"root2", "root9"}, code: refusal.Threshold, without: "keys: signed by the version before"},
	{name: "threshold lowered by too few of the old", change: func(t *testing.T, k *spec.Keys) { k.Roles.Root.Threshold = 1 },
		signers: []string{"root1"}, code: refusal.Threshold, without: "keys: signed by the version before"},
	{name: "a version skipped", change: func(_ *testing.T, k *spec.Keys) { k.Version++ }, signers: []string{"root1", "root2"}, code: refusal.Rollback, without: "keys: next version"},
	{name: "a version far ahead", change: func(_ *testing.T, k *spec.Keys) { k.Version = 1 << 40 }, signers: []string{"root1", "root2"}, code: refusal.Rollback, without: "keys: next version"},
	{name: "the number of the version before, behind it", change: func(_ *testing.T, k *spec.Keys) { k.Version = 1 }, signers: []string{"root1", "root2"}, code: refusal.Rollback},
	{name: "the same version again", change: func(_ *testing.T, k *spec.Keys) { k.Version = 1; k.Previous = "" }, signers: []string{"root1", "root2"}, code: refusal.Rollback},
	{name: "a fork", change: func(_ *testing.T, k *spec.Keys) { k.Previous = oci.Digest([]byte("another version 1")) },
		signers: []string{"root1", "root2"}, code: refusal.Replay, without: "keys: previous"},
	{name: "a key in two roles", change: func(t *testing.T, k *spec.Keys) { k.Roles.Operator = role(t, 1, "root1") },
		signers: []string{"root1", "root2"}, code: refusal.Keys, without: "keys: sense"},
	{name: "a key twice in a role", change: func(t *testing.T, k *spec.Keys) { k.Roles.Operator = role(t, 2, "operator1", "operator1") },
		signers: []string{"root1", "root2"}, code: refusal.BadKey, without: "keys: sense"},
	{name: "a key twice in a role, written otherwise", change: func(t *testing.T, k *spec.Keys) {
		k.Roles.Operator = role(t, 2, "operator1", "operator1")
		k.Roles.Operator.Keys[1] = "\n" + strings.ReplaceAll(k.Roles.Operator.Keys[1], "\n", "\r\n")
	}, signers: []string{"root1", "root2"}, code: refusal.BadKey, without: "keys: sense"},
	{name: "more keys in a role than are looked at", change: func(t *testing.T, k *spec.Keys) {
		var names []string
		for i := range MaxRole + 1 {
			names = append(names, fmt.Sprintf("operator-%d", i))
		}
		k.Roles.Operator = role(t, 1, names...)
	}, signers: []string{"root1", "root2"}, code: refusal.Threshold, without: "keys: sense"},
	{name: "a threshold of none", change: func(_ *testing.T, k *spec.Keys) { k.Roles.Operator.Threshold = 0 },
		signers: []string{"root1", "root2"}, code: refusal.Threshold, without: "keys: sense"},
	{name: "a threshold that nobody reaches", change: func(_ *testing.T, k *spec.Keys) { k.Roles.Operator.Threshold = 2 },
		signers: []string{"root1", "root2"}, code: refusal.Threshold, without: "keys: sense"},
	{name: "no operator", change: func(_ *testing.T, k *spec.Keys) { k.Roles.Operator = spec.Role{} },
		signers: []string{"root1", "root2"}, code: refusal.Threshold, without: "keys: sense"},
	{name: "a revoked key in a role", change: func(t *testing.T, k *spec.Keys) { k.Revoked = []string{id(t, "operator1")} },
		signers: []string{"root1", "root2"}, code: refusal.Keys, without: "keys: sense"},
	{name: "another fleet", change: func(_ *testing.T, k *spec.Keys) { k.Fleet = "metal-b" }, signers: []string{"root1", "root2"}, code: refusal.WrongFleet, without: "keys: fleet"},
	{name: "a statement about another version", spoil: func(t *testing.T, c *trust.Candidate) {
		c.Bundles = nil
		for _, name := range []string{"root1", "root2"} {
			b, err := sign.SignKeys(key(t, name), oci.Digest(c.Document), sign.KeysPredicate{Fleet: "metal-a", Version: 7, IssuedAt: now})
			if err != nil {
				t.Fatal(err)
			}
			c.Bundles = append(c.Bundles, b)
		}
	}, code: refusal.Contradiction, without: "keys: agreement"},
	{name: "signed for another purpose", spoil: func(t *testing.T, c *trust.Candidate) {
		c.Bundles = nil
		for _, name := range []string{"root1", "root2"} {
			b, err := sign.SignFleet(key(t, name), oci.Digest(c.Document), sign.PredicateFleet, sign.FleetPredicate{Fleet: "metal-a", IssuedAt: now, Expires: now.Add(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			c.Bundles = append(c.Bundles, b)
		}
	}, code: refusal.PredicateType},
	{name: "a need of a later release", change: func(_ *testing.T, k *spec.Keys) { k.Needs = []string{"two-chains"} },
		signers: []string{"root1", "root2"}, code: refusal.NeedsAgent, without: "keys: needs"},
	{name: "not the one encoding", spoil: func(t *testing.T, c *trust.Candidate) { *c = signedRaw(t, append(c.Document, '\n'), "root1", "root2") },
		code: refusal.Keys, without: "keys: document"},
	{name: "too large", change: func(_ *testing.T, k *spec.Keys) { k.Reason = strings.Repeat("x", oci.MaxKeys) },
		signers: []string{"root1", "root2"}, code: refusal.Oversize, without: "keys: size"},
}

// signedRaw signs bytes as they are, as version 2.
func signedRaw(t *testing.T, raw []byte, names ...string) trust.Candidate {
	t.Helper()
	c := trust.Candidate{Document: raw}
	for _, name := range names {
		b, err := sign.SignKeys(key(t, name), oci.Digest(raw), sign.KeysPredicate{Fleet: "metal-a", Version: 2, IssuedAt: now})
		if err != nil {
			t.Fatal(err)
		}
		c.Bundles = append(c.Bundles, b)
	}
	return c
}

func (a attempt) candidate(t *testing.T) trust.Candidate {
	c := signedBy(t, after(t, first(t), func(k *spec.Keys) {
		if a.change != nil {
			a.change(t, k)
		}
	}), a.signers...)
	if a.spoil != nil {
		a.spoil(t, &c)
	}
	return c
}

func TestAdd(t *testing.T) {
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			c := begin(t, first(t))
			_, err := c.Add(a.candidate(t))
			if refusal.Of(err) != a.code || (err == nil) != (a.code == "") {
				t.Fatalf("%v, want %q", err, a.code)
			}
			if want := map[bool]uint64{true: 2, false: 1}[err == nil]; c.Version() != want {
				t.Errorf("version %d counts, want %d", c.Version(), want)
			}
		})
	}
}

// TestNoCheckIsVacuous leaves out the check that a row names, and wants harm. A document
// that no parser takes is read leniently instead.
func TestNoCheckIsVacuous(t *testing.T) {
	named := map[string]bool{}
	for _, a := range attempts {
		if a.without == "" {
			continue
		}
		named[a.without] = true
		t.Run(a.name, func(t *testing.T) {
			c := begin(t, first(t))
			switch a.without {
			case "keys: document":
				c.rules = all.With(a.without, func(s *step) error {
					_, err := spec.DecodeKnown(bytes.TrimSpace(s.candidate.Document), &s.doc)
					return err
				})
			case "keys: signed by the version before": // somebody else's word stands in
				c.rules = all.With(a.without, func(s *step) error {
					s.said = sign.KeysPredicate{Fleet: "metal-a", Version: 2}
					return nil
				})
			default:
				c.rules = all.Without(a.without)
			}
			if _, err := c.Add(a.candidate(t)); err != nil {
				t.Errorf("it does no harm without %q: %v", a.without, err)
			}
		})
	}
	for _, name := range all.Names() {
		// Revoked ids leave only after a version that has some: TestRevokedStays.
		if !named[name] && name != "keys: revoked" {
			t.Errorf("no row names the check %q", name)
		}
	}
}

// TestNoKeyHasTwoRoles: whichever two they are, the owners of a key would be taken for each other.
func TestNoKeyHasTwoRoles(t *testing.T) {
	places := func(k *spec.Keys) map[string]*spec.Role {
		return map[string]*spec.Role{"root": &k.Roles.Root, "operator": &k.Roles.Operator, "release": &k.Roles.Release,
			"attestation": &k.Roles.Attestation, "epoch": &k.Roles.Epoch, "rescue": &k.Roles.Rescue}
	}
	one := first(t)
	if n := len(places(&one)); n != len(one.Roles.All()) {
		t.Fatalf("%d of %d roles", n, len(one.Roles.All()))
	}
	for a := range places(&one) {
		for b := range places(&one) {
			if a >= b {
				continue
			}
			next := after(t, one, func(k *spec.Keys) {
				for name, r := range places(k) {
					*r = role(t, 1, name+"-alone")
				}
				*places(k)[a], *places(k)[b] = role(t, 1, "both"), role(t, 1, b+"-alone", "both")
			})
			if _, err := begin(t, one).Add(signedBy(t, next, "root1", "root2", "root-alone", "both")); refusal.Of(err) != refusal.Keys || !strings.Contains(err.Error(), "has two roles") {
				t.Errorf("%s and %s: %v", a, b, err)
			}
		}
	}
}

// TestSequences: what a version changed counts for the one after it, and for nothing before it.
func TestSequences(t *testing.T) {
	type offer struct {
		name    string
		change  func(k *spec.Keys)
		signers []string
		code    refusal.Code // "" is accepted, and the next offer comes after it
	}
	for name, offers := range map[string][]offer{
		"threshold raised and lowered": {
			{"raised", func(k *spec.Keys) { k.Roles.Root.Threshold = 3 }, []string{"root1", "root2", "root3"}, ""},
			{"by as many as before", nil, []string{"root1", "root2"}, refusal.Threshold},
			{"lowered by as many as before", func(k *spec.Keys) { k.Roles.Root.Threshold = 1 }, []string{"root1", "root2"}, refusal.Threshold},
			{"one of them twice", nil, []string{"root1", "root2", "root2"}, refusal.Threshold},
			{"lowered by all", func(k *spec.Keys) { k.Roles.Root.Threshold = 1 }, []string{"root1", "root2", "root3"}, ""},
			{"by one", nil, []string{"root3"}, ""},
		},
		"a revoked root key signs something newer": {
			{"revoked", func(k *spec.Keys) {
				k.Roles.Root, k.Revoked = role(t, 2, "root2", "root3", "root4"), []string{id(t, "root1")}
			}, []string{"root1", "root2", "root3"}, ""},
			{"by it alone", nil, []string{"root1"}, refusal.UnknownKey},
			{"by it and one that counts", nil, []string{"root1", "root2"}, refusal.Threshold},
			{"by it, and back in its role", func(k *spec.Keys) { k.Roles.Root = role(t, 1, "root1") }, []string{"root1", "root2"}, refusal.Threshold},
			{"back in its role by those that count", func(k *spec.Keys) { k.Roles.Root = role(t, 1, "root1", "root2") }, []string{"root2", "root3"}, refusal.Keys},
			{"back in another role", func(k *spec.Keys) { k.Roles.Operator = role(t, 1, "root1") }, []string{"root2", "root3"}, refusal.Keys},
			{"no more in the list, and back", func(k *spec.Keys) { k.Roles.Operator, k.Revoked = role(t, 1, "root1"), nil }, []string{"root2", "root3"}, refusal.Keys},
			{"by it beside enough others", nil, []string{"root1", "root2", "root3"}, ""},
		},
		"a root key that left comes back": {
			{"it leaves", func(k *spec.Keys) { k.Roles.Root = role(t, 2, "root2", "root3") }, []string{"root1", "root2", "root3"}, ""},
			{"by it and one that counts", nil, []string{"root1", "root2"}, refusal.Threshold},
			{"back by its own word", func(k *spec.Keys) { k.Roles.Root = role(t, 2, "root1", "root2") }, []string{"root1", "root2"}, refusal.Threshold},
			{"back by those that count", func(k *spec.Keys) { k.Roles.Root = role(t, 2, "root1", "root2") }, []string{"root1", "root2", "root3"}, ""},
			{"it counts", nil, []string{"root1", "root2"}, ""},
		},
		"root keys rotate again and again": {
			{"all", func(k *spec.Keys) { k.Roles.Root = role(t, 1, "root8") }, []string{"root1", "root2", "root8"}, ""},
			{"by those of version 1", nil, []string{"root1", "root2", "root3"}, refusal.UnknownKey},
			{"once more", func(k *spec.Keys) { k.Roles.Root = role(t, 1, "root9") }, []string{"root8", "root9"}, ""},
			{"by those of version 2", nil, []string{"root8"}, refusal.UnknownKey},
			{"by those of version 1 and its own", func(k *spec.Keys) { k.Roles.Root = role(t, 1, "root1") }, []string{"root1", "root2"}, refusal.UnknownKey},
		},
	} {
		t.Run(name, func(t *testing.T) {
			one := first(t)
			c := begin(t, one)
			for _, o := range offers {
				at := c.Version()
				_, err := c.Add(signedBy(t, after(t, c.Newest().Keys, o.change), o.signers...))
				if refusal.Of(err) != o.code || (err == nil) != (o.code == "") {
					t.Fatalf("%s: %v, want %q", o.name, err, o.code)
				}
				if err != nil {
					at--
				}
				if c.Version() != at+1 {
					t.Fatalf("%s: version %d counts, %d counted before", o.name, c.Version(), at)
				}
			}
		})
	}
}

// TestAForkIsNotJoined: who took one of two versions 2 takes nothing that follows the other.
func TestAForkIsNotJoined(t *testing.T) {
	one := first(t)
	ours := after(t, one, func(k *spec.Keys) { k.Reason = "ours" })
	theirs := after(t, one, func(k *spec.Keys) { k.Reason = "theirs" })
	c := begin(t, one)
	if _, err := c.Add(signedBy(t, ours, "root1", "root2")); err != nil {
		t.Fatal(err)
	}
	for next, code := range map[*spec.Keys]refusal.Code{&theirs: refusal.Rollback, new(after(t, theirs, nil)): refusal.Replay, &one: refusal.Rollback, &ours: refusal.Rollback} {
		if _, err := c.Add(signedBy(t, *next, "root1", "root2")); refusal.Of(err) != code {
			t.Errorf("version %d, %q: %v, want %s", next.Version, next.Reason, err, code)
		}
	}
	if _, err := c.Add(signedBy(t, after(t, ours, nil), "root1", "root2")); err != nil {
		t.Error(err)
	}
}

// TestRevokedStays: a key that is revoked never comes back, and its id never leaves.
func TestRevokedStays(t *testing.T) {
	one := first(t)
	two := after(t, one, func(k *spec.Keys) {
		k.Roles.Operator, k.Revoked = role(t, 1, "operator2"), []string{id(t, "operator1")}
	})
	forgets := after(t, two, func(k *spec.Keys) { k.Revoked = nil; k.Roles.Operator = role(t, 1, "operator1") })
	for _, rules := range []checkList{nil, all.Without("keys: revoked")} {
		c := begin(t, one)
		c.rules = rules
		if _, err := c.Add(signedBy(t, two, "root1", "root2")); err != nil {
			t.Fatal(err)
		}
		_, err := c.Add(signedBy(t, forgets, "root1", "root2"))
		if want := map[bool]refusal.Code{true: refusal.Keys}[rules == nil]; refusal.Of(err) != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// place serves versions by their tags; what an answer is may change on the way.
type place struct {
	oci.Source
	versions map[string]trust.Candidate
	err      error // of what is not there
	asked    int
}

func (p *place) Manifest(_ context.Context, repo, tag, _ string) (oci.Response, error) {
	p.asked++
	c, ok := p.versions[tag]
	if repo != oci.RepoFleet || !ok {
		return oci.Response{}, p.err
	}
	raw := c.SaveKeys() // a manifest whose blobs are all inline
	return oci.Response{Digest: oci.Digest(raw), Data: raw}, nil
}

// published is a place with n versions, in each of which the root is another key.
func published(t testing.TB, n int) (spec.Keys, *place) {
	one := first(t)
	one.Roles.Root = role(t, 1, "root-1")
	p, k := &place{versions: map[string]trust.Candidate{}, err: oci.ErrNotFound}, one
	for v := 2; v <= n; v++ {
		before, now := fmt.Sprintf("root-%d", v-1), fmt.Sprintf("root-%d", v)
		k = after(t, k, func(k *spec.Keys) { k.Roles.Root = role(t, 1, now) })
		p.versions[trust.KeysTag(k.Version)] = signedBy(t, k, before, now)
	}
	return one, p
}

func keepAll(Link) error { return nil }

func TestWalk(t *testing.T) {
	one, p := published(t, 20)
	c := begin(t, one)
	if err := c.Walk(t.Context(), p, keepAll); err != nil || c.Version() != 20 || p.asked != 20 {
		t.Errorf("%v, version %d after %d questions", err, c.Version(), p.asked)
	}

	t.Run("cut in the middle", func(t *testing.T) {
		one, p := published(t, 20)
		delete(p.versions, trust.KeysTag(11))
		p.err = errors.New("connection refused")
		c := begin(t, one)
		if err := c.Walk(t.Context(), p, keepAll); err == nil || c.Version() != 10 {
			t.Errorf("%v, version %d", err, c.Version())
		}
		whole, q := published(t, 20)
		_ = whole
		if err := c.Walk(t.Context(), q, keepAll); err != nil || c.Version() != 20 {
			t.Errorf("taken up again: %v, version %d", err, c.Version())
		}
	})
	t.Run("what cannot be kept does not count", func(t *testing.T) {
		one, p := published(t, 5)
		c := begin(t, one)
		full := errors.New("no space left on device")
		err := c.Walk(t.Context(), p, func(l Link) error {
			if l.Keys.Version == 4 {
				return full
			}
			return nil
		})
		if !errors.Is(err, full) || c.Version() != 3 {
			t.Errorf("%v, version %d", err, c.Version())
		}
	})
	t.Run("cut at each version, and taken up", func(t *testing.T) {
		one, p := published(t, 5)
		c := begin(t, one)
		for v := uint64(2); v <= 5; v++ {
			next := p.versions[trust.KeysTag(v+1)]
			delete(p.versions, trust.KeysTag(v+1))
			p.err = errors.New("connection reset by peer")
			if err := c.Walk(t.Context(), p, keepAll); !errors.Is(err, p.err) || c.Version() != v {
				t.Errorf("%v, version %d, want %d", err, c.Version(), v)
			}
			if v < 5 {
				p.versions[trust.KeysTag(v+1)] = next
			}
		}
	})
	t.Run("the newest version is hidden", func(t *testing.T) {
		one, p := published(t, 5)
		delete(p.versions, trust.KeysTag(5))
		c := begin(t, one)
		if err := c.Walk(t.Context(), p, keepAll); err != nil || c.Version() != 4 {
			t.Errorf("%v, version %d", err, c.Version())
		}
		if err := c.Behind(5); refusal.Of(err) != refusal.KeysBehind {
			t.Errorf("Behind = %v", err)
		}
	})
	t.Run("an earlier version under the next tag", func(t *testing.T) {
		one, p := published(t, 5)
		p.versions[trust.KeysTag(4)] = p.versions[trust.KeysTag(3)]
		c := begin(t, one)
		if err := c.Walk(t.Context(), p, keepAll); err == nil || c.Version() != 3 {
			t.Errorf("%v, version %d", err, c.Version())
		}
		p.versions[trust.KeysTag(4)] = p.versions[trust.KeysTag(5)] // and a later one
		if err := c.Walk(t.Context(), p, keepAll); err == nil || c.Version() != 3 {
			t.Errorf("%v, version %d", err, c.Version())
		}
	})
	t.Run("a forged version ends it", func(t *testing.T) {
		one, p := published(t, 5)
		forged := p.versions[trust.KeysTag(4)]
		forged.Bundles = forged.Bundles[1:] // the root key of version 4 alone
		p.versions[trust.KeysTag(4)] = forged
		c := begin(t, one)
		if err := c.Walk(t.Context(), p, keepAll); refusal.Of(err) != refusal.UnknownKey || c.Version() != 3 {
			t.Errorf("%v, version %d", err, c.Version())
		}
		if err := c.Behind(5); refusal.Of(err) != refusal.KeysBehind {
			t.Errorf("Behind = %v", err)
		}
		if err := c.Behind(3); err != nil {
			t.Errorf("Behind = %v", err)
		}
	})
}

// TestWalkIsBounded: 256 steps at once and no more; the next walk goes on. Where that many are
// all there are, the walk has come to their end.
func TestWalkIsBounded(t *testing.T) {
	one := first(t)
	p, k := &place{versions: map[string]trust.Candidate{}, err: oci.ErrNotFound}, one
	for range MaxSteps {
		k = after(t, k, nil)
		p.versions[trust.KeysTag(k.Version)] = signedBy(t, k, "root1", "root2")
	}
	all := begin(t, one)
	if err := all.Walk(t.Context(), p, keepAll); err != nil || all.Version() != MaxSteps+1 {
		t.Errorf("%v, version %d", err, all.Version())
	}
	for range 10 {
		k = after(t, k, nil)
		p.versions[trust.KeysTag(k.Version)] = signedBy(t, k, "root1", "root2")
	}
	c := begin(t, one)
	if err := c.Walk(t.Context(), p, keepAll); !errors.Is(err, ErrLong) || c.Version() != MaxSteps+1 {
		t.Errorf("%v, version %d", err, c.Version())
	}
	if err := c.Walk(t.Context(), p, keepAll); err != nil || c.Version() != k.Version {
		t.Errorf("%v, version %d", err, c.Version())
	}
}

func TestBootstrap(t *testing.T) {
	one := first(t)
	one.Roles.Epoch = role(t, 1, "epoch1")
	b := begin(t, one).Bootstrap(spec.Bootstrap{Fleet: "metal-a", Keys: []string{"old"}, Threshold: 7, EpochKeys: []string{"old"}})
	if !slices.Equal(b.Keys, one.Roles.Operator.Keys) || b.Threshold != 1 || !slices.Equal(b.EpochKeys, one.Roles.Epoch.Keys) || b.Fleet != "metal-a" {
		t.Errorf("%+v", b)
	}
}

func FuzzAdd(f *testing.F) {
	one := first(f)
	good := signedBy(f, after(f, one, nil), "root1", "root2")
	f.Add(good.Document, good.Bundles[0], good.Bundles[1])
	f.Add([]byte("{}"), []byte("{}"), []byte(nil))
	f.Fuzz(func(t *testing.T, doc, a, b []byte) {
		c := begin(t, one)
		l, err := c.Add(trust.Candidate{Document: doc, Bundles: [][]byte{a, b}})
		if err == nil && !bytes.Equal(doc, good.Document) {
			t.Errorf("taken: %+v", l.Keys)
		}
	})
}
