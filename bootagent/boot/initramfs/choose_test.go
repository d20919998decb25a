// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"crypto/ecdsa"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

// overlay signs and pushes one that names the layer.
func (p *published) overlay(key *ecdsa.PrivateKey, generation uint64, layer string) {
	p.t.Helper()
	p.id = trust.Identity{Node: "superhost"}
	p.bootstrap.Keys, p.bootstrap.Threshold = []string{string(sign.VerifierOf(key).PEM())}, 1
	doc, err := spec.Encode(spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: "superhost", Layer: layer}})
	if err != nil {
		p.t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	bundle, err := sign.SignOverlay(key, oci.Digest(doc), sign.Predicate{Fleet: "metal-a", Node: "superhost", Layer: layer, Generation: generation, IssuedAt: now, Expires: now.Add(time.Hour)})
	if err != nil {
		p.t.Fatal(err)
	}
	raw, blobs := oci.OverlayManifest(doc, bundle)
	for _, b := range blobs {
		if err := p.r.PutData(p.t.Context(), oci.RepoNode, b); err != nil {
			p.t.Fatal(err)
		}
	}
	if _, err := p.r.PutManifest(p.t.Context(), oci.RepoNode, oci.MediaTypeManifest, raw, "superhost"); err != nil {
		p.t.Fatal(err)
	}
}

// boots chooses, begins, and says which generation that was.
func (p *published) boots() uint64 {
	p.t.Helper()
	if _, _, err := p.choose(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.begin()
	return p.record.Generation.Generation
}

func (p *published) comesUp() {
	p.t.Helper()
	s, err := p.folder.Load()
	if err != nil {
		p.t.Fatal(err)
	}
	s.Promote()
	if err := p.folder.Save(s); err != nil {
		p.t.Fatal(err)
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// A generation that takes the node down each time must not do so for ever.
func TestAGenerationThatNeverComesUp(t *testing.T) {
	p, key := publish(t), newKey(t)
	p.overlay(key, 1, p.layer("good").Overlay.Layer)
	for range attempts + 1 {
		if got := p.boots(); got != 1 {
			t.Fatalf("generation %d; there is no other than 1", got)
		}
	}
	p.comesUp()
	p.overlay(key, 2, p.layer("bad").Overlay.Layer)
	for n := range attempts {
		if got := p.boots(); got != 2 {
			t.Fatalf("attempt %d boots generation %d", n, got)
		}
	}
	if got := p.boots(); got != 1 || p.record.Sync != "behind" || p.record.Source != "cached" {
		t.Errorf("then generation %d, %s, %s; want the good one", got, p.record.Sync, p.record.Source)
	}
	p.overlay(key, 3, p.layer("mended").Overlay.Layer)
	if got := p.boots(); got != 3 {
		t.Errorf("generation %d, though 3 is there", got)
	}
}

// The layer of the last good overlay rotted and there is no network.
func TestTheLayerBeforeWhereTheLastRotted(t *testing.T) {
	p, key := publish(t), newKey(t)
	for generation, image := range []string{"old", "new"} {
		p.overlay(key, uint64(generation+1), p.layer(image).Overlay.Layer)
		p.boots()
		p.comesUp()
	}
	if err := os.WriteFile(p.store.Path(p.record.Layer.Images[0].Digest), []byte("rot"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.source = nil
	found, layer, err := p.fallBack(t.Context())
	if err != nil || found.Generation.Generation != 1 || layer.Images[0].Digest != oci.Digest([]byte("old")) {
		t.Errorf("%+v, %v", found, err)
	}
}

// A name from DHCP is tried last, and remembered for a boot without DHCP.
func TestTheNameThatDHCPGave(t *testing.T) {
	p, key := publish(t), newKey(t)
	p.overlay(key, 1, p.layer("image").Overlay.Layer)
	p.id = trust.Identity{MACs: []string{"52:54:00:00:00:01"}}
	p.lease = &state.Lease{HostName: "SuperHost"}
	p.boots()
	p.comesUp()
	p.lease, p.source = nil, nil
	if found, _, err := p.fallBack(t.Context()); err != nil || found.Overlay.Node != "superhost" {
		t.Errorf("without DHCP: %+v, %v", found, err)
	}
}

// Only an attempt that is counted may be ended by a deadline: another would be
// started over for ever.
func TestOnlyACountedBootHasADeadline(t *testing.T) {
	p, key := publish(t), newKey(t)
	p.overlay(key, 1, p.layer("image").Overlay.Layer)
	if p.boots(); !p.unproven {
		t.Error("a new generation has all the time in the world")
	}
	p.comesUp()
	p.unproven = false
	if p.boots(); p.unproven {
		t.Error("a good generation has a deadline")
	}
	p.overlay(key, 2, p.layer("other").Overlay.Layer)
	if _, _, err := p.choose(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(p.folder.Path("state*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	if p.begin(); p.unproven {
		t.Error("a boot that could not be counted has a deadline")
	}
}
