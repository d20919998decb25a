// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/attack"
)

// FuzzLoad feeds what a disk may hold.
func FuzzLoad(f *testing.F) {
	for _, row := range attack.Load(f) {
		if m := row.Forge(f).Manifest; row.Of() == "oci" && len(m) < 8<<10 {
			f.Add(m)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Load(data)
		if err != nil {
			return
		}
		again, err := Load(c.Save())
		if err != nil || string(again.Document) != string(c.Document) || len(again.Bundles) != len(c.Bundles) {
			t.Fatalf("saved and loaded again: %v", err)
		}
	})
}

// FuzzAcceptOverlay feeds documents as if their signature were good: what is
// accepted is canonical and safe to act on.
func FuzzAcceptOverlay(f *testing.F) {
	for _, row := range attack.Load(f) {
		if o := row.Forge(f).Overlay; row.Of() == "trust" && len(o) < 8<<10 {
			f.Add(o)
		}
	}
	unsigned := All().Without("signature")
	f.Fuzz(func(t *testing.T, doc []byte) {
		var o struct {
			Layer string
			Match sign.Match
		}
		_ = json.Unmarshal(doc, &o) // a publisher that signs anything
		a, err := unsigned.decide(&decision{
			candidate: Candidate{Document: doc},
			bootstrap: spec.Bootstrap{Fleet: "metal-a"},
			id:        Identity{Node: "superhost", MACs: o.Match.MACs, UUIDs: o.Match.UUIDs},
			said:      sign.Predicate{Fleet: "metal-a", Node: "superhost", Match: o.Match, Layer: o.Layer, Generation: 1},
		})
		if err != nil {
			if refusal.Of(err) == "" {
				t.Fatalf("no refusal: %v", err)
			}
			return
		}
		var core spec.Core // as a loader of another release reads it
		if _, err := spec.DecodeKnown(doc, &core); err != nil || !reflect.DeepEqual(core, a.Overlay.Core) {
			t.Fatalf("a loader reads %+v, %v: %q", core, err, doc)
		}
		again, err := spec.Encode(a.Overlay)
		if err != nil {
			t.Fatal(err)
		}
		// What another release added is left out; the rest stands as it was signed.
		var known spec.Overlay
		left, err := spec.DecodeKnown(doc, &known)
		if err != nil {
			t.Fatalf("accepted what does not decode: %v: %q", err, doc)
		}
		if want, err := spec.Encode(known); err != nil || string(again) != string(want) || len(left) == 0 && string(again) != string(doc) {
			t.Fatalf("accepted what is not canonical: %q", doc)
		}
	})
}
