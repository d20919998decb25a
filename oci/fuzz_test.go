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

// FuzzParseRef wants that a reference never leads to another host than it shows.
func FuzzParseRef(f *testing.F) {
	for _, s := range []string{"registry.example.org:5000/metal-a", "oci:./out", "[::1]:5000/x", "user@host/x", "host/../x", "https://x", "host:port"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRef(s)
		if err != nil {
			return
		}
		again, err := ParseRef(r.String())
		if err != nil || again != r {
			t.Fatalf("ParseRef(%q) = %+v, and read again %+v, %v", s, r, again, err)
		}
		if !r.IsLayout() {
			o, err := openRemote(r, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if want := "https://" + r.Host + "/v2/"; len(o.base) < len(want) || o.base[:len(want)] != want {
				t.Fatalf("ParseRef(%q) leads to %s", s, o.base)
			}
		}
	})
}

func FuzzParseChallenge(f *testing.F) {
	f.Add(`Bearer realm="https://auth.example.org/token",service="registry",scope="repository:a/b:pull,push"`)
	f.Add(`Basic realm="x"`)
	f.Fuzz(func(t *testing.T, line string) { parseChallenge(line) })
}
