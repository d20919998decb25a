// SPDX-License-Identifier: Apache-2.0

package release

import (
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
)

// Builds that are in the cache take less than a second: each index is issued later
// than the one that it takes the place of, or a publisher would see a replay.
func TestIndexesOfOneSecond(t *testing.T) {
	r, err := registry.Open("oci:"+t.TempDir()+"/out", registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p := Pusher{Registry: r, Release: key, Now: now}
	for n, version := range []string{"1", "2", "3"} {
		layer := oci.Describe(oci.MediaTypeManifest, []byte(version)).Bare()
		digest, err := p.Index(t.Context(), []oci.Descriptor{layer}, nil, "metal", version)
		if err != nil {
			t.Fatal(err)
		}
		s, err := (&Set{Index: digest, registry: r}).Statement(t.Context(), []sign.Verifier{sign.VerifierOf(key)})
		if want := now.Add(time.Duration(n) * time.Second); err != nil || !s.IssuedAt.Equal(want) {
			t.Errorf("index %s is issued at %s (%v), want %s", version, s.IssuedAt, err, want)
		}
	}
}
