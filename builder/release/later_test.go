// SPDX-License-Identifier: Apache-2.0

package release

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/golden"
)

// TestStatementOfALaterRelease: of what a release key says about an index, a key that is not
// known is left out, and what must not be left out is refused.
func TestStatementOfALaterRelease(t *testing.T) {
	for more, want := range map[string]refusal.Code{``: "", `,"laterKey":{"a":1}`: "", `,"needs":["a"]`: refusal.NeedsAgent, `,"Version":"2"`: refusal.Predicate} {
		reg, err := registry.Open("oci:"+t.TempDir(), registry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		key, err := sign.Generate()
		if err != nil {
			t.Fatal(err)
		}
		raw := oci.Encode(oci.Index{SchemaVersion: 2, MediaType: oci.MediaTypeIndex, Manifests: []oci.Descriptor{}})
		index, err := reg.PutManifest(t.Context(), oci.RepoLayer, oci.MediaTypeIndex, raw)
		if err != nil {
			t.Fatal(err)
		}
		bundle, err := sign.Attest(key, index, PredicateLayers, []byte(`{"fleet":"metal-a","version":"1","issuedAt":"2026-11-01T00:00:00Z"`+more+`}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := Attach(t.Context(), reg, oci.Describe(oci.MediaTypeManifest, raw), Bundle{bundle, PredicateLayers, time.Unix(1800000000, 0)}); err != nil {
			t.Fatal(err)
		}
		s, err := (&Set{Index: index, registry: reg}).Statement(t.Context(), []sign.Verifier{sign.VerifierOf(key)})
		if refusal.Of(err) != want || want == "" && (err != nil || s.Version != "1") {
			t.Errorf("%q: %+v, %v", more, s, err)
		}
	}
}

// TestStatementGolden: the statement of a release key about an index is read, and written
// byte-equal.
func TestStatementGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/layers.json", Page: "../../docs/formats/statement.md", New: new(Statement), Write: json.Marshal,
		Read:  func(data []byte) (any, error) { s := new(Statement); return s, json.Unmarshal(data, s) },
		Types: []reflect.Type{reflect.TypeFor[Statement]()}})
}
