// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"slices"
	"testing"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/attack"
)

// FuzzVerifyOverlay feeds bundles that others wrote. None is accepted: the key is
// never one that signed.
func FuzzVerifyOverlay(f *testing.F) {
	for _, row := range attack.Load(f) {
		if row.Of() != "sign" {
			continue
		}
		for _, b := range row.Forge(f).Bundles {
			if len(b) < 8<<10 {
				f.Add(b)
			}
		}
	}
	key, err := Generate()
	if err != nil {
		f.Fatal(err)
	}
	keys, err := ParsePublics([]string{string(VerifierOf(key).PEM())})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := VerifyOverlay([][]byte{data}, keys, 1, oci.Digest(nil)); refusal.Of(err) == "" {
			t.Fatalf("a bundle that nobody signed: %v", err)
		}
	})
}

// FuzzStatement feeds statements as if their signature were good: real ones
// differ each time, which a fuzzer takes for progress.
func FuzzStatement(f *testing.F) {
	f.Add([]byte(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}}],"predicateType":"https://caisson.dev/overlay/v1","predicate":{"fleet":"a","node":"b","match":{},"layer":"","epoch":0,"generation":1,"issuedAt":"2026-11-01T00:00:00Z","expires":"2026-12-01T00:00:00Z"}}`))
	after := slices.IndexFunc(bundleChecks, func(c check.Check[*candidate]) bool { return c.Name == "signature" }) + 1
	f.Fuzz(func(t *testing.T, payload []byte) {
		var p Predicate
		c := &candidate{digest: oci.Digest(nil), kind: PredicateOverlay, into: &p, sound: p.check}
		c.bundle.Envelope = &dsse{Payload: payload}
		if _, err := c.run(bundleChecks[after:]); err != nil {
			if refusal.Of(err) == "" {
				t.Fatalf("no refusal: %v", err)
			}
			return
		}
		if p.Fleet == "" || p.Node == "" || p.Generation == 0 || !p.Expires.After(p.IssuedAt) {
			t.Fatalf("accepted %+v", p)
		}
	})
}

func FuzzParsePublic(f *testing.F) {
	key, err := Generate()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(VerifierOf(key).PEM())
	f.Fuzz(func(t *testing.T, data []byte) {
		if pub, err := ParsePublic(data); err == nil && pub.ID() == "" {
			t.Fatal("a key without an id")
		}
	})
}
