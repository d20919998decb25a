// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/site"
)

// shop builds sites with [Bake] and pushes them, with layers of which only the accounts
// are real.
type shop struct {
	*testing.T
	Pusher
	keys    []sign.Verifier
	brought []spec.Account // by every layer that has the package "brings"
}

func newShop(t *testing.T) *shop {
	t.Helper()
	r, err := registry.Open("oci:"+t.TempDir()+"/out", registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return &shop{T: t, Pusher: Pusher{Registry: r, Release: key, Now: time.Unix(1000, 0)}, keys: []sign.Verifier{sign.VerifierOf(key)}}
}

// site has the users of everybody, and of node b alone.
func (s *shop) site(all, b string) *site.Site {
	s.Helper()
	text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal}\nlayer: {base: {debian: {suite: trixie}}, kernel: {package: linux-image-amd64}}\n" +
		"nodes: [{name: a}, {name: b}]\nconf: {" + all + "}\n"
	if b != "" {
		kind, _, _ := strings.Cut(b, ":")
		text = strings.TrimSuffix(text, "}\n") + ", overrides: {divingbell_" + kind + ": {hosts: [{name: b, conf: {" + b + "}}]}}}\n"
	}
	out, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
	if err := found.Err(); err != nil {
		s.Fatalf("%v\n%s", err, text)
	}
	return out
}

func (s *shop) make(_ context.Context, recipe spec.Recipe, variant, version string, o builder.Options) (*builder.Result, error) {
	encoded, err := spec.Encode(recipe)
	if err != nil {
		return nil, err
	}
	r := &builder.Result{Recipe: encoded, Ledger: o.Ledger, Layer: spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: recipe.Fleet, Version: version,
		Variant: variant, Arch: "amd64", Created: "2026-01-01T00:00:00Z", Recipe: oci.Digest(encoded), Images: []spec.Image{}, Accounts: accounts.Present(recipe.Accounts, o.Ledger)}}
	if slices.ContainsFunc(recipe.Packages.Install, func(p spec.Package) bool { return p.Name == "brings" }) {
		r.Brought = s.brought
	}
	for _, row := range r.Layer.Accounts {
		for _, other := range r.Brought {
			if row.UID == other.UID {
				return nil, fmt.Errorf("accounts: %w", &accounts.Taken{User: row.Name, UID: row.UID, By: other.Name})
			}
		}
	}
	return r, nil
}

func (s *shop) before() (b Before) {
	s.Helper()
	set, err := Find(s.Context(), s.Registry, Current)
	if errors.Is(err, oci.ErrNotFound) {
		return b
	}
	if err == nil {
		b.Layers = set.Layers
		b.Ledger, err = set.Accounts(s.Context(), "metal", s.keys)
	}
	if err != nil {
		s.Fatal(err)
	}
	return b
}

func (s *shop) bake(before Before, all, b string) (*Built, error) {
	s.Helper()
	return Bake(s.Context(), s.site(all, b), Build{Before: before, Make: s.make})
}

// build is a whole build; it returns the layers by variant.
func (s *shop) build(all, b string) *Pushed {
	s.Helper()
	built, err := s.bake(s.before(), all, b)
	if err != nil {
		s.Fatal(err)
	}
	s.Now = s.Now.Add(time.Second)
	out, err := s.PushAll(s.Context(), "metal", built.Version(), built)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

func text(rows []spec.Account) string {
	var out []string
	for _, row := range rows {
		out = append(out, fmt.Sprintf("%s %d %s", row.Name, row.UID, row.State))
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ", ")
}

const (
	ann    = "uamlite: {users: [{user_name: ann}]}"
	annKim = "uamlite: {users: [{user_name: ann}, {user_name: kim}]}"
	annTom = "uamlite: {users: [{user_name: ann}, {user_name: tom}]}"
)

// A number outlives its user, in the ledger and in no layer of others.
func TestLedger(t *testing.T) {
	s := newShop(t)
	plain := s.build(ann, "").Layers[0].Digest
	if with := s.build(ann, annKim); with.Layers[0].Digest != plain || len(with.Layers) != 2 {
		t.Errorf("kim on one node: the layer of the others was %s: %+v", plain, with)
	}
	if without := s.build(ann, ""); without.Layers[0].Digest != plain {
		t.Errorf("kim is gone: the layer of the others was %s: %+v", plain, without)
	}
	if got, want := text(s.before().Ledger), "ann 1000 active, kim 1001 expired"; got != want {
		t.Errorf("the ledger has %s, want %s", got, want)
	}
	s.build(ann, annTom)
	if got, want := text(s.before().Ledger), "ann 1000 active, kim 1001 expired, tom 1002 active"; got != want {
		t.Errorf("the ledger has %s, want %s", got, want)
	}
	// What one node had becomes everybody's: the node stays where it is, and who leaves
	// everybody stays, expired, in their layer.
	tried := s.build(ann, annTom).Layers[1].Digest
	if all := s.build(annTom, ""); len(all.Layers) != 1 || all.Layers[0].Digest != tried {
		t.Errorf("one node's layer %s became everybody's: %+v", tried, all)
	}
	s.build(ann, "")
	layers, err := Open(t.Context(), s.Registry, Current)
	if err != nil || len(layers) != 1 {
		t.Fatal(layers, err)
	}
	if got, want := text(layers[0].Accounts), "ann 1000 active, tom 1002 expired"; got != want {
		t.Errorf("the layer has %s, want %s", got, want)
	}
}

// Two builds that began with the same ledger do not give one number twice: the second is
// to begin again.
func TestTwoBuilds(t *testing.T) {
	s := newShop(t)
	s.build(ann, "")
	before := s.before()
	built, err := s.bake(before, ann, annTom)
	if err != nil {
		t.Fatal(err)
	}
	s.build(ann, annKim)
	_, err = s.PushAll(t.Context(), "metal", "late", built)
	if refusal.Of(err) != refusal.Contradiction || !strings.Contains(err.Error(), `"kim"`) {
		t.Errorf("tom has kim's number: %v", err)
	}
	if got, want := text(s.before().Ledger), "ann 1000 active, kim 1001 active"; got != want {
		t.Errorf("the ledger has %s, want %s", got, want)
	}
	s.build(ann, annTom)
	if got, want := text(s.before().Ledger), "ann 1000 active, kim 1001 expired, tom 1002 active"; got != want {
		t.Errorf("the ledger has %s, want %s", got, want)
	}
}

// Of two builders with a release key each, neither gives a number that the other gave.
func TestTwoBuildersWithTheirKeys(t *testing.T) {
	s := newShop(t)
	second, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	s.keys = append(s.keys, sign.VerifierOf(second))
	s.Trusted = s.keys
	s.build(ann, "")
	built, err := s.bake(s.before(), ann, annTom)
	if err != nil {
		t.Fatal(err)
	}
	first := s.Release
	s.Release = second
	s.build(ann, annKim)
	s.Release = first
	_, err = s.PushAll(t.Context(), "metal", "late", built)
	if refusal.Of(err) != refusal.Contradiction || !strings.Contains(err.Error(), `"kim"`) {
		t.Errorf("tom has kim's number: %v", err)
	}
	if got, want := text(s.before().Ledger), "ann 1000 active, kim 1001 active"; got != want {
		t.Errorf("the ledger has %s, want %s", got, want)
	}
}

// What is not the ledger of a stated index of this fleet is not gone on with.
func TestLedgerRefused(t *testing.T) {
	s := newShop(t)
	layer := s.build(ann, "").Layers[0].Digest
	stranger, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		reference, fleet string
		keys             []sign.Verifier
		want             refusal.Code
	}{
		"one layer":      {layer, "metal", s.keys, "missing"},
		"another's key":  {Current, "metal", []sign.Verifier{sign.VerifierOf(stranger)}, ""},
		"another fleet":  {Current, "other", nil, refusal.WrongFleet},
		"named, by hand": {Current, "metal", nil, ""},
	} {
		set, err := Find(t.Context(), s.Registry, c.reference)
		if err != nil {
			t.Fatal(err)
		}
		_, err = set.Accounts(t.Context(), c.fleet, c.keys)
		if (err == nil) != (name == "named, by hand") || c.want != "" && refusal.Of(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A ledger with a key of a later release is refused: the next version's would lack it.
func TestLedgerOfALaterRelease(t *testing.T) {
	s := newShop(t)
	document, err := spec.Encode(ledger{spec.APIVersion, KindLedger, "metal", []spec.Account{}})
	if err != nil {
		t.Fatal(err)
	}
	d := oci.Describe(oci.TypeLedger, slices.Concat(document[:len(document)-1], []byte(`,"gone":[]}`)))
	if err := s.Registry.PutData(t.Context(), oci.RepoLayer, d); err != nil {
		t.Fatal(err)
	}
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLedger,
		Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(), Layers: []oci.Descriptor{d.Bare()}})
	set := &Set{registry: s.Registry}
	if set.ledger, err = s.Registry.PutManifest(t.Context(), oci.RepoLayer, oci.MediaTypeManifest, raw); err != nil {
		t.Fatal(err)
	}
	if _, err := set.readLedger(t.Context(), "metal"); refusal.Of(err) != refusal.Malformed || !strings.Contains(err.Error(), `"gone"`) {
		t.Errorf("%v", err)
	}
}

// An account that a package brings has its number from the moment that it is met, and a
// user who is new and asked for none gets another: in the layer of the package and in
// others. One whose number was given stays, and the build says what to do.
func TestBroughtAccounts(t *testing.T) {
	s := newShop(t)
	s.brought = accounts.PeopleIn("robot:x:1000:1000::/:/bin/sh\n")
	const brings = "apt: {packages: [{name: brings}]}"
	for name, c := range map[string]struct{ all, b string }{
		"in one layer": {ann + ", " + brings, ""}, "in two": {ann, brings},
	} {
		built, err := s.bake(Before{}, c.all, c.b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := text(built.Ledger), "ann 1001 active, robot 1000 purged"; got != want {
			t.Errorf("%s: the ledger has %s, want %s", name, got, want)
		}
	}
	var taken *accounts.Taken
	if _, err := s.bake(Before{Ledger: []spec.Account{{Name: "ann", UID: 1000, GID: 1000, State: "active"}}}, ann+", "+brings, ""); !errors.As(err, &taken) {
		t.Errorf("ann had her number before: %v", err)
	}
	if _, err := s.bake(Before{}, "uamlite: {users: [{user_name: ann, user_uid: 1000}]}, "+brings, ""); !errors.As(err, &taken) {
		t.Errorf("ann asks for the number: %v", err)
	}
}

// Of pruned versions the ledgers go; a layer that a later version has as it was stays.
func TestPruneLedgers(t *testing.T) {
	s := newShop(t)
	s.build(ann, annKim)
	s.build(ann, annTom)
	s.build(ann, "")
	ledgers := func() (n int) {
		for _, reference := range []string{Current} {
			set, err := Find(t.Context(), s.Registry, reference)
			if err != nil || set.ledger == "" {
				t.Fatal(set, err)
			}
		}
		tags, err := s.Registry.Tags(t.Context(), oci.RepoLayer)
		if err != nil {
			t.Fatal(err)
		}
		for _, tag := range tags {
			if !strings.HasPrefix(tag, "keep-") && !strings.HasPrefix(tag, "sha256-") {
				n++
			}
		}
		return n
	}
	if n := ledgers(); n != 4 {
		t.Fatalf("%d versions", n)
	}
	for range 2 { // the second finds what the first left
		batch, err := s.Registry.Batch()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Prune(t.Context(), s.Registry, batch, nil, 1); err != nil {
			t.Fatal(err)
		}
		if err := batch.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := ledgers(); n != 2 {
		t.Errorf("%d versions are left, want the current one under its two names", n)
	}
	if got, want := text(s.before().Ledger), "ann 1000 active, kim 1001 expired, tom 1002 expired"; got != want {
		t.Errorf("the ledger has %s, want %s", got, want)
	}
}

// TestIndexWithoutLedger: nobody could say which numbers were given to others.
func TestIndexWithoutLedger(t *testing.T) {
	s := newShop(t)
	raw := oci.Encode(oci.Index{SchemaVersion: 2, MediaType: oci.MediaTypeIndex, ArtifactType: oci.TypeLayer, Manifests: []oci.Descriptor{}})
	if _, err := s.Registry.PutManifest(t.Context(), oci.RepoLayer, oci.MediaTypeIndex, raw, "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(t.Context(), s.Registry, "1"); refusal.Of(err) != refusal.Malformed {
		t.Errorf("it is taken: %v", err)
	}
}

// TestLedgerGolden: the account ledger that 0.9.0 wrote is read, and written byte-equal.
func TestLedgerGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/golden/ledger.json")
	if err != nil {
		t.Fatal(err)
	}
	var l ledger
	if unknown, err := spec.DecodeKnown(golden, &l); err != nil || unknown != nil || l.Kind != KindLedger || len(l.Accounts) != 2 {
		t.Fatalf("%+v, unknown %q, %v", l, unknown, err)
	}
	if again, err := spec.Encode(l); err != nil || !bytes.Equal(again, golden) {
		t.Errorf("written otherwise: %v\n%s", err, again)
	}
}
