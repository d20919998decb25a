// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/registrytest"
)

// world is a registry with two layers, and keys of all roles.
type world struct {
	shelf  Shelf
	keys   map[string]*ecdsa.PrivateKey
	layers map[string]string // by their letters
	asked  Asked
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldAt(t, "oci:"+t.TempDir())
}

func newWorldAt(t *testing.T, place string) *world {
	t.Helper()
	r, err := registry.Open(place, registry.Options{PlainHTTP: true})
	must(t, err)
	w := &world{keys: map[string]*ecdsa.PrivateKey{}, layers: map[string]string{}}
	for _, role := range []string{"attestation", "operator", "release", "stranger"} {
		w.keys[role], err = sign.Generate()
		must(t, err)
	}
	for _, letter := range []string{"a", "b", "c"} {
		config := oci.Describe(oci.TypeLayerConfig, []byte(`{"version":"`+letter+`"}`))
		must(t, r.PutData(t.Context(), oci.RepoLayer, config))
		raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer, Config: config.Bare(), Layers: []oci.Descriptor{}})
		w.layers[letter], err = r.PutManifest(t.Context(), oci.RepoLayer, oci.MediaTypeManifest, raw)
		must(t, err)
	}
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	w.asked = Asked{Rule: spec.RehearsedSettings, From: w.end("a", "was"), To: w.end("b", "is"), Planned: now}
	w.shelf = Shelf{Registry: r, Fleet: "metal-a", Keys: []sign.Verifier{sign.VerifierOf(w.keys["attestation"])}, Now: now.Add(2 * time.Hour)}
	return w
}

func (w *world) end(letter, settings string) End {
	return End{w.layers[letter], digest.Of([]byte(settings))}
}

// attach attaches what a row says to layer b.
func (w *world) attach(t *testing.T, row attack.Rehearsal, result string, issued time.Time) {
	t.Helper()
	r := Rehearsal{Fleet: cmp.Or(row.Fleet, "metal-a"), Result: result, IssuedAt: issued,
		From: w.end(cmp.Or(row.From, "a"), cmp.Or(row.Was, "was")), To: w.end(cmp.Or(row.Names, "b"), cmp.Or(row.Is, "is"))}
	if row.Altered {
		r.Result = Failed
	}
	predicate, err := json.Marshal(r)
	must(t, err)
	bundle, err := sign.Attest(w.keys[cmp.Or(row.By, "attestation")], w.layers["b"], cmp.Or(row.Kind, Predicate), predicate)
	must(t, err)
	if row.Altered {
		payload := payloadOf(t, bundle)
		altered := bytes.Replace(payload, []byte(`"failed"`), []byte(`"passed"`), 1)
		coded := base64.StdEncoding.EncodeToString
		bundle = bytes.Replace(bundle, []byte(coded(payload)), []byte(coded(altered)), 1)
	}
	must(t, release.AttachRehearsal(t.Context(), w.shelf.Registry, w.layers["b"], bundle, issued))
}

func payloadOf(t testing.TB, bundle []byte) []byte {
	t.Helper()
	var b struct {
		Envelope struct {
			Payload []byte `json:"payload"`
		} `json:"dsseEnvelope"`
	}
	must(t, json.Unmarshal(bundle, &b))
	return b.Envelope.Payload
}

// counts reports whether a row counts, without a check.
func counts(t *testing.T, row attack.Rehearsal, without string) bool {
	t.Helper()
	w := newWorld(t)
	results := row.Results
	if results == nil {
		results = []string{Passed}
	}
	for i, result := range results {
		w.attach(t, row, result, w.asked.Planned.Add(-row.Age).Add(time.Duration(i)*time.Second))
	}
	w.asked.Rule = cmp.Or(row.Rule, w.asked.Rule)
	w.shelf.rules = whole.Without(without)
	if without == "signature" { // a statement has to be read all the same
		w.shelf.rules = whole.With(without, func(c *candidate) error {
			var s struct{ Predicate Rehearsal }
			err := json.Unmarshal(payloadOf(t, c.bundle), &s)
			c.says = s.Predicate
			return err
		})
	}
	err := w.shelf.Check(t.Context(), w.asked)
	if err != nil && !errors.Is(err, ErrNotRehearsed) {
		t.Fatal(err)
	}
	return err == nil
}

// TestAttacks: each is refused by the check that it names.
func TestAttacks(t *testing.T) {
	seen := map[string]bool{"newest": false}
	for _, name := range whole.Names() {
		seen[name] = false
	}
	for _, row := range attack.LoadClass[attack.Rehearsal](t, "rehearsal") {
		if row.At != "fleet/evidence" || row.Test != "" {
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			if got := counts(t, row, ""); got != (row.Check == "") {
				t.Errorf("it counts: %v", got)
			}
			if row.Check != "" && row.Check != "newest" && !counts(t, row, row.Check) {
				t.Errorf("it counts for nothing without the check %q", row.Check)
			}
		})
		seen[row.Check] = true
	}
	for name, is := range seen {
		if !is {
			t.Errorf("no attack names the check %q", name)
		}
	}
}

// TestManyStatements: strangers attach what they like. The newest are looked at, and the release
// signature of the layer is found among them.
func TestManyStatements(t *testing.T) {
	for kind, place := range map[string]string{"layout": "oci:" + t.TempDir(), "list under a tag": registrytest.Distribution(t) + "/metal-a"} {
		t.Run(kind, func(t *testing.T) { testManyStatements(t, newWorldAt(t, place)) })
	}
}

func testManyStatements(t *testing.T, w *world) {
	resp, err := w.shelf.Registry.Source().Manifest(t.Context(), oci.RepoLayer, w.layers["b"], "")
	must(t, err)
	for i := range 70 {
		w.attach(t, attack.Rehearsal{By: "stranger"}, Passed, w.asked.Planned.Add(time.Duration(i-100)*time.Hour))
	}
	must(t, release.Sign(t.Context(), w.shelf.Registry, resp.Data, w.keys["release"], w.shelf.Now))
	w.attach(t, attack.Rehearsal{}, Passed, w.asked.Planned)
	must(t, w.shelf.Check(t.Context(), w.asked))
	must(t, release.Verify(t.Context(), w.shelf.Registry, w.layers["b"], []sign.Verifier{sign.VerifierOf(w.keys["release"])}))
}

// What names one node, and when it may change, is no part of its settings; all else is.
func TestSettings(t *testing.T) {
	one := func() *spec.Overlay {
		return &spec.Overlay{Core: spec.Core{Fleet: "metal-a", Node: "a", Layer: "sha256:1", Variant: "default", Match: spec.Match{MACs: []string{"52:54:00:00:00:01"}}, Needs: []string{"secrets"},
			Network: spec.Network{DNS: []string{"192.0.2.1"}, Interfaces: []spec.Interface{{MAC: "52:54:00:00:00:01", MTU: 9000, Addresses: []string{"192.0.2.7/24"}},
				{Name: "bond0", Bond: &spec.Bond{Members: []string{"52:54:00:00:00:02", "52:54:00:00:00:03"}, Mode: "active-backup", Primary: "52:54:00:00:00:02"}}}}},
			Secrets: []spec.Secret{{Name: "token", Sealed: "a"}},
			Items:   spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "1"}}, NICs: []spec.NIC{{ID: "x", Match: spec.NICMatch{MAC: "52:54:00:00:00:01"}}}}}
	}
	want, err := Settings(one())
	must(t, err)
	for name, test := range map[string]struct {
		change func(*spec.Overlay)
		same   bool
	}{
		"name":          {func(o *spec.Overlay) { o.Node = "b" }, true},
		"identifiers":   {func(o *spec.Overlay) { o.Match = spec.Match{UUIDs: []string{"x"}} }, true},
		"layer":         {func(o *spec.Overlay) { o.Layer, o.Variant = "sha256:2", "other" }, true},
		"secrets":       {func(o *spec.Overlay) { o.Secrets, o.Needs = nil, nil }, true},
		"windows":       {func(o *spec.Overlay) { o.Maintenance = &spec.Maintenance{} }, true},
		"pause":         {func(o *spec.Overlay) { o.Pause = &spec.Pause{Reason: "x"} }, true},
		"address":       {func(o *spec.Overlay) { o.Network.Interfaces[0].Addresses = []string{"192.0.2.8/24"} }, true},
		"card":          {func(o *spec.Overlay) { o.Network.Interfaces[0].MAC = "52:54:00:00:00:09" }, true},
		"bond":          {func(o *spec.Overlay) { o.Network.Interfaces[1].Bond.Members[0] = "52:54:00:00:00:09" }, true},
		"card of nics":  {func(o *spec.Overlay) { o.Items.NICs[0].Match.MAC = "52:54:00:00:00:09" }, true},
		"a member more": {func(o *spec.Overlay) { o.Network.Interfaces[1].Bond.Members = make([]string, 3) }, false},
		"mode":          {func(o *spec.Overlay) { o.Network.Interfaces[1].Bond.Mode = "802.3ad" }, false},
		"mtu":           {func(o *spec.Overlay) { o.Network.Interfaces[0].MTU = 1500 }, false},
		"resolver":      {func(o *spec.Overlay) { o.Network.DNS = nil }, false},
		"sysctl":        {func(o *spec.Overlay) { o.Items.Sysctl[0].Value = "2" }, false},
		"kernel":        {func(o *spec.Overlay) { o.KernelArgs = []string{"quiet"} }, false},
		"fleet":         {func(o *spec.Overlay) { o.Fleet = "metal-b" }, false},
	} {
		o := one()
		test.change(o)
		before, err := spec.Encode(o)
		must(t, err)
		got, err := Settings(o)
		must(t, err)
		if (got == want) != test.same {
			t.Errorf("%s: the same: %v", name, got == want)
		}
		if after, err := spec.Encode(o); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s: the overlay was changed", name)
		}
	}
}

// TestAFailedReadIsNotKept: what could not be read is read when somebody asks again.
func TestAFailedReadIsNotKept(t *testing.T) {
	w := newWorld(t)
	w.attach(t, attack.Rehearsal{}, Passed, w.asked.Planned)
	index := filepath.Join(w.shelf.Registry.Ref().Layout, "index.json")
	must(t, os.Rename(index, index+".away"))
	if err := w.shelf.Check(t.Context(), w.asked); err == nil || errors.Is(err, ErrNotRehearsed) {
		t.Errorf("without an index: %v", err)
	}
	must(t, os.Rename(index+".away", index))
	if err := w.shelf.Check(t.Context(), w.asked); err != nil {
		t.Error(err)
	}
}
