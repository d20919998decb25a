// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// shelf is a layout with released layers.
type shelf struct {
	testing.TB
	r    *registry.Registry
	keys []sign.Verifier
	p    release.Pusher
}

func newShelf(t testing.TB) *shelf {
	t.Helper()
	r, err := registry.Open("oci:"+t.TempDir()+"/out", registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return &shelf{t, r, []sign.Verifier{sign.VerifierOf(key)}, release.Pusher{Registry: r, Release: key, Now: time.Unix(1000, 0)}}
}

func (s *shelf) push(version string, packages ...string) string {
	s.Helper()
	l := spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "metal", Version: version, Variant: "default", Arch: "amd64", Images: []spec.Image{}}
	for _, p := range packages {
		name, v, _ := strings.Cut(p, "=")
		l.Packages = append(l.Packages, spec.InstalledPackage{Name: name, Version: v, Arch: "all"})
	}
	d, err := s.p.Push(s.Context(), &builder.Result{Layer: l}, "trixie")
	if err != nil {
		s.Fatal(err)
	}
	return d.Digest
}

// read is what a fleet's service does, in short.
func (s *shelf) read(ctx context.Context, digest string) (release.Layer, error) {
	l, err := release.Read(ctx, s.r, digest)
	if err != nil {
		return l, err
	}
	return l, l.Verify(ctx, s.keys)
}

// What differs is what 'caisson diff' says, and each layer is read once.
func TestBetween(t *testing.T) {
	s := newShelf(t)
	one, two := s.push("1", "bash=5", "curl=8", "gone=1"), s.push("2", "bash=5", "curl=9", "new=1")
	reads := 0
	table := NewLayers(func(ctx context.Context, digest string) (release.Layer, error) { reads++; return s.read(ctx, digest) })
	for range 3 {
		d, err := table.Between(t.Context(), one, two)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range d.Packages {
			got = append(got, c.Name+" "+c.From+">"+c.To)
		}
		if text := strings.Join(got, ", "); text != "curl 8>9, gone 1>, new >1" {
			t.Errorf("packages: %s", text)
		}
		if d, err := table.Between(t.Context(), one, one); d != nil || err != nil {
			t.Errorf("from a layer to itself: %v %v", d, err)
		}
	}
	if reads != 2 {
		t.Errorf("%d reads", reads)
	}
}

// Layers of the same packages whose accounts differ are two layers.
func TestBetweenAccounts(t *testing.T) {
	s := newShelf(t)
	one := s.push("1", "bash=5")
	l := spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "metal", Version: "1", Variant: "default", Arch: "amd64", Images: []spec.Image{},
		Packages: []spec.InstalledPackage{{Name: "bash", Version: "5", Arch: "all"}}, Accounts: []spec.Account{{Name: "kim", UID: 1001, GID: 1001, State: "active"}}}
	two, err := s.p.Push(t.Context(), &builder.Result{Layer: l}, "trixie")
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewLayers(s.read).Between(t.Context(), one, two.Digest)
	if err != nil || d == nil || len(d.Packages) != 0 || len(d.Accounts) != 1 || d.Accounts[0] != (release.Change{Name: "kim", To: "1001 active"}) {
		t.Errorf("%+v %v", d, err)
	}
}

// A layer that nobody released is not compared, and not asked for again at once; a
// registry that does not answer is.
func TestBetweenTrouble(t *testing.T) {
	s := newShelf(t)
	one := s.push("1", "bash=5")
	stranger, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	s.p.Release = stranger
	two := s.push("2", "bash=6")
	reads, down := map[string]int{}, error(nil)
	table := NewLayers(func(ctx context.Context, digest string) (release.Layer, error) {
		reads[digest]++
		if down != nil {
			return release.Layer{}, down
		}
		return s.read(ctx, digest)
	})
	now := time.Unix(5000, 0)
	table.now = func() time.Time { return now }
	down = errors.New("connection refused")
	for range 2 {
		if _, err := table.Between(t.Context(), one, two); !errors.Is(err, down) {
			t.Error(err)
		}
	}
	down = nil
	for range 2 {
		if d, err := table.Between(t.Context(), one, two); d != nil || refusal.Of(err) == "" {
			t.Errorf("a stranger's layer: %v %v", d, err)
		}
	}
	now = now.Add(tryAgain)
	if _, err := table.Between(t.Context(), one, two); err == nil || reads[one] != 3 || reads[two] != 2 {
		t.Errorf("%v, %v reads", err, reads)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	table.turn <- struct{}{} // somebody else reads
	if _, err := table.Between(ctx, one, two); !errors.Is(err, context.Canceled) {
		t.Errorf("while somebody else reads: %v", err)
	}
}
