// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"crypto/ecdsa"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/registrytest"
)

// place is a registry with a layer in it.
type place struct {
	t    *testing.T
	addr string
	reg  *registry.Registry
}

func newPlace(t *testing.T) *place {
	t.Helper()
	addr := registrytest.Distribution(t)
	reg, err := registry.Open(addr+"/metal-a", registry.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	return &place{t, addr, reg}
}

func (p *place) ref(d oci.Descriptor) string { return p.addr + "/metal-a/layer@" + d.Digest }

func (p *place) layer(text string) oci.Descriptor {
	p.t.Helper()
	config, image := oci.Describe(oci.TypeLayerConfig, []byte("{}")), oci.Describe(oci.TypeSquashfs, []byte(text))
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer, Config: config.Bare(), Layers: []oci.Descriptor{image.Bare()}})
	for _, d := range []oci.Descriptor{config, image} {
		if err := p.reg.PutData(p.t.Context(), "layer", d); err != nil {
			p.t.Fatal(err)
		}
	}
	if _, err := p.reg.PutManifest(p.t.Context(), "layer", oci.MediaTypeManifest, raw); err != nil {
		p.t.Fatal(err)
	}
	return oci.Describe(oci.MediaTypeManifest, raw).Bare()
}

func (p *place) attach(d oci.Descriptor, bundle []byte) {
	p.t.Helper()
	if _, err := p.reg.Attach(p.t.Context(), "layer", d, registry.Attachment{Type: oci.TypeBundle, Blob: oci.Describe(oci.TypeBundle, bundle)}); err != nil {
		p.t.Fatal(err)
	}
}

// bundles reads every bundle that refers to a layer, the way publish does.
func (p *place) bundles(d oci.Descriptor) (out [][]byte) {
	p.t.Helper()
	list, err := p.reg.Referrers(p.t.Context(), "layer", d.Digest)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, r := range list {
		raw, _, err := p.reg.Manifest(p.t.Context(), "layer", r.Digest)
		if err != nil {
			p.t.Fatal(err)
		}
		m, err := oci.ParseManifest(raw)
		if err != nil {
			p.t.Fatal(err)
		}
		b, err := oci.ReadBlob(p.t.Context(), p.reg.Source(), "layer", m.Layers[0], oci.MaxBundle)
		if err != nil {
			p.t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

func newKey(t *testing.T, c *cosign, name, passphrase string) *ecdsa.PrivateKey {
	t.Helper()
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	text, err := keys.Marshal(key, []byte(passphrase))
	if err != nil {
		t.Fatal(err)
	}
	c.file(name+".key", text)
	c.file(name+".pub", sign.VerifierOf(key).PEM())
	return key
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestKeys: cosign opens our key files and we open theirs.
func TestKeys(t *testing.T) {
	versions(t, func(t *testing.T, c *cosign) {
		key := newKey(t, c, "ours", "secret")
		out, err := c.run("public-key", "--key", "ours.key")
		if err != nil || out != string(sign.VerifierOf(key).PEM()) {
			t.Errorf("cosign public-key = %v\n%s", err, out)
		}
		theirs, err := keys.Parse(c.read("cosign.key"), []byte("secret"))
		if err != nil {
			t.Fatal(err)
		}
		if got := sign.VerifierOf(theirs).PEM(); string(got) != string(c.read("cosign.pub")) {
			t.Errorf("the public half of cosign's key is\n%s", got)
		}
		if _, err := keys.Parse(c.read("cosign.key"), []byte("wrong")); err != keys.ErrPassphrase {
			t.Errorf("with the wrong passphrase: %v", err)
		}
	})
}

// TestOursVerifyThere: cosign verify takes a release signature of caisson.
func TestOursVerifyThere(t *testing.T) {
	p := newPlace(t)
	versions(t, func(t *testing.T, c *cosign) {
		key := newKey(t, c, "release", "")
		newKey(t, c, "stranger", "")
		verify := func(key string, d oci.Descriptor) []string {
			return c.verifyArgs("verify", key, "--allow-http-registry", p.ref(d))
		}
		signed, unsigned := p.layer("signed "+c.version), p.layer("unsigned "+c.version)
		bundle := must[[]byte](t)(sign.SignArtifact(key, signed.Digest))
		p.attach(signed, bundle)

		c.must(verify("release.pub", signed)...)
		c.refuses("could not verify envelope", verify("stranger.pub", signed)...)
		c.refuses("no ", verify("release.pub", unsigned)...)
		p.attach(unsigned, bundle) // the signature of another layer
		c.refuses("does not match any digest", verify("release.pub", unsigned)...)
	})
}

// TestServedLayout: cosign verifies what caisson serve serves, which has the
// referrers API.
func TestServedLayout(t *testing.T) {
	dir := t.TempDir()
	reg := must[*registry.Registry](t)(registry.Open("oci:"+dir, registry.Options{}))
	h, err := registry.Handler(dir)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	p := &place{t, strings.TrimPrefix(server.URL, "http://"), reg}
	versions(t, func(t *testing.T, c *cosign) {
		key := newKey(t, c, "release", "")
		d := p.layer("served " + c.version)
		p.attach(d, must[[]byte](t)(sign.SignArtifact(key, d.Digest)))
		c.must(c.verifyArgs("verify", "release.pub", "--allow-http-registry", p.ref(d))...)
	})
}

// TestTheirsVerifyHere: we take cosign's signature of a layer, and not its attestation.
func TestTheirsVerifyHere(t *testing.T) {
	p := newPlace(t)
	versions(t, func(t *testing.T, c *cosign) {
		keys := []sign.Verifier{must[sign.Verifier](t)(sign.ParsePublic(c.read("cosign.pub")))}
		stranger := newKey(t, c, "stranger", "")
		signed, attested := p.layer("theirs "+c.version), p.layer("attested "+c.version)
		c.must(c.signArgs("sign", "cosign.key", "--allow-http-registry", p.ref(signed))...)
		c.must(c.signArgs("attest", "cosign.key", "--allow-http-registry", "--type", "slsaprovenance1", "--predicate", c.file("predicate.json", []byte(`{"buildDefinition":{},"runDetails":{}}`)), p.ref(attested))...)

		list := p.bundles(signed)
		if len(list) != 1 {
			t.Fatalf("%d bundles, want 1", len(list))
		}
		if err := sign.VerifyArtifact(list[0], signed.Digest, keys); err != nil {
			t.Errorf("cosign's signature: %v", err)
		}
		if err := sign.VerifyArtifact(list[0], attested.Digest, keys); refusal.Of(err) != refusal.Subject {
			t.Errorf("cosign's signature of another layer: %v", err)
		}
		if err := sign.VerifyArtifact(list[0], signed.Digest, []sign.Verifier{sign.VerifierOf(stranger)}); refusal.Of(err) != refusal.UnknownKey {
			t.Errorf("cosign's signature with another key: %v", err)
		}
		if list = p.bundles(attested); len(list) != 1 {
			t.Fatalf("%d bundles, want 1", len(list))
		}
		if err := sign.VerifyArtifact(list[0], attested.Digest, keys); refusal.Of(err) != refusal.PredicateType {
			t.Errorf("cosign's attestation as a signature: %v", err)
		}
		if _, err := sign.VerifyAttestation(list[0], attested.Digest, sign.PredicateProvenance, keys); err != nil {
			t.Errorf("cosign's attestation as what it is: %v", err)
		}
	})
}

var overlay = []byte(`{"apiVersion":"caisson.dev/v1alpha1"}`)

func predicate() sign.Predicate {
	return sign.Predicate{
		Fleet: "metal-a", Node: "superhost", Match: sign.Match{MACs: []string{"52:54:00:12:34:56"}}, Layer: oci.Digest(nil),
		Epoch: 1, Generation: 7, IssuedAt: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), Expires: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
	}
}

// TestOverlays: cosign checks an overlay's bundle as a blob's attestation, and an
// overlay that cosign signed, for example with a KMS, is one to a node.
func TestOverlays(t *testing.T) {
	versions(t, func(t *testing.T, c *cosign) {
		key := newKey(t, c, "operator", "")
		newKey(t, c, "stranger", "")
		c.file("overlay.json", overlay)
		c.file("altered.json", append([]byte(" "), overlay...))
		c.file("bundle.json", must[[]byte](t)(sign.SignOverlay(key, oci.Digest(overlay), predicate())))
		verify := func(key, kind, file string) []string {
			return c.verifyArgs("verify-blob-attestation", key, "--bundle", "bundle.json", "--type", kind, file)
		}
		c.must(verify("operator.pub", sign.PredicateOverlay, "overlay.json")...)
		c.refuses("could not verify envelope", verify("stranger.pub", sign.PredicateOverlay, "overlay.json")...)
		c.refuses("invalid predicate type", verify("operator.pub", sign.PredicateFleet, "overlay.json")...)
		c.refuses("provided artifact digest", verify("operator.pub", sign.PredicateOverlay, "altered.json")...)

		text := must[[]byte](t)(json.Marshal(predicate()))
		c.must(c.signArgs("attest-blob", "cosign.key", "--type", sign.PredicateOverlay, "--predicate", c.file("predicate.json", text), "--bundle", "theirs.json", "overlay.json")...)
		keys := []sign.Verifier{must[sign.Verifier](t)(sign.ParsePublic(c.read("cosign.pub")))}
		v, err := sign.VerifyOverlay([][]byte{c.read("theirs.json")}, keys, 1, oci.Digest(overlay))
		if err != nil {
			t.Fatalf("an overlay that cosign signed: %v\n%s", err, c.read("theirs.json"))
		}
		if v.Predicate.Generation != 7 || v.Predicate.Node != "superhost" {
			t.Errorf("predicate = %+v", v.Predicate)
		}
		if _, err := sign.VerifyOverlay([][]byte{c.read("theirs.json")}, keys, 1, oci.Digest(nil)); refusal.Of(err) != refusal.Subject {
			t.Errorf("another overlay with cosign's signature: %v", err)
		}
	})
}

// TestEpochs: the epoch key can stay with cosign.
func TestEpochs(t *testing.T) {
	versions(t, func(t *testing.T, c *cosign) {
		keys := []sign.Verifier{must[sign.Verifier](t)(sign.ParsePublic(c.read("cosign.pub")))}
		c.file("epoch.txt", sign.EpochText("metal-a", 2))
		c.file("predicate.json", []byte(`{"fleet":"metal-a","epoch":2}`))
		c.must(c.signArgs("attest-blob", "cosign.key", "--type", sign.PredicateEpoch, "--predicate", "predicate.json", "--bundle", "grant.json", "epoch.txt")...)
		grant := [][]byte{c.read("grant.json")}
		if err := sign.VerifyEpoch(grant, keys, "metal-a", 2); err != nil {
			t.Errorf("a permission by cosign: %v", err)
		}
		if err := sign.VerifyEpoch(grant, keys, "metal-a", 3); refusal.Of(err) != refusal.Subject {
			t.Errorf("a permission for another epoch: %v", err)
		}
	})
}
