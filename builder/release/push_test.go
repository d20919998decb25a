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

// TestCurrentIsNewerThanWhatWasSeen: two builds of one second are two, whichever key signed the
// first, and a date ahead of the clock is not followed.
func TestCurrentIsNewerThanWhatWasSeen(t *testing.T) {
	now := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	for seen, want := range map[time.Duration]time.Duration{-time.Hour: 0, 0: time.Second, time.Minute: time.Minute + time.Second, time.Hour: 0} {
		reg, err := registry.Open("oci:"+t.TempDir(), registry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		key, err := sign.Generate()
		if err != nil {
			t.Fatal(err)
		}
		p := &Pusher{Registry: reg, Release: key, Now: now, Seen: now.Add(seen)}
		index, err := p.Index(t.Context(), nil, nil, "metal-a", "1")
		if err != nil {
			t.Fatal(err)
		}
		s, err := (&Set{Index: index, registry: reg}).Statement(t.Context(), []sign.Verifier{sign.VerifierOf(key)})
		if err != nil || !s.IssuedAt.Equal(now.Add(want)) {
			t.Errorf("seen %s from now: %s, %v", seen, s.IssuedAt, err)
		}
	}
}
