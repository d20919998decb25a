// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"testing"

	"github.com/caisson-os/caisson/test/attack"
)

// seeds are the manifests of the attack corpus.
func seeds(f *testing.F, pick func(*attack.World) []byte) {
	for _, row := range attack.Load(f) {
		if row.Of() != "oci" {
			continue
		}
		if data := pick(row.Forge(f)); len(data) < 8<<10 {
			f.Add(data)
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	seeds(f, func(w *attack.World) []byte { return w.Manifest })
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseManifest(data)
		if err != nil {
			return
		}
		if _, err := ParseIndex(data); err == nil {
			t.Fatal("one text is a manifest and an index")
		}
		again, err := ParseManifest(Encode(*m))
		if err != nil {
			t.Fatalf("what was accepted is refused when written again: %v", err)
		}
		for i, d := range again.Layers {
			if d.Digest != m.Layers[i].Digest || d.Size < 0 || !ValidDigest(d.Digest) {
				t.Fatalf("layer %d is %+v", i, d)
			}
		}
	})
}

func FuzzParseIndex(f *testing.F) {
	seeds(f, func(w *attack.World) []byte { return w.LayerManifest })
	f.Add([]byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := ParseIndex(data)
		if err != nil {
			return
		}
		for _, d := range x.Manifests {
			if d.MediaType == MediaTypeIndex || !ValidDigest(d.Digest) {
				t.Fatalf("an index holds %+v", d)
			}
		}
	})
}
