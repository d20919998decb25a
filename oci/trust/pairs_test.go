// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

var issued = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// publish signs an overlay for a machine, with a sysctl value of some length.
func publish(t testing.TB, key *ecdsa.PrivateKey, id Identity, length int) Candidate {
	t.Helper()
	o := spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: id.Node, Match: spec.Match{MACs: id.MACs, UUIDs: id.UUIDs}}}
	for i := range length / 64 {
		o.Items.Sysctl = append(o.Items.Sysctl, spec.Sysctl{Key: fmt.Sprintf("net/ipv4/conf/eth%06d/forwarding", i), Value: "1"})
	}
	doc, err := spec.Encode(o)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := sign.SignOverlay(key, oci.Digest(doc), sign.Predicate{
		Fleet: o.Fleet, Node: o.Node, Match: sign.Match(o.Match), Generation: 1, IssuedAt: issued, Expires: issued.Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	return Candidate{Document: doc, Bundles: [][]byte{bundle}}
}

func anchor(t testing.TB) (*ecdsa.PrivateKey, spec.Bootstrap) {
	t.Helper()
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return key, spec.Bootstrap{Fleet: "metal-a", Keys: []string{string(sign.VerifierOf(key).PEM())}, Threshold: 1}
}

// TestEveryNodeRefusesEveryOther gives each of 40 machines each of their
// overlays: bound by address, by UUID, by both, by name alone, and asked by
// machines that know their name and machines that do not.
func TestEveryNodeRefusesEveryOther(t *testing.T) {
	key, b := anchor(t)
	var ids []Identity
	var overlays []Candidate
	for i := range 40 {
		id := Identity{Node: fmt.Sprintf("node-%02d", i)}
		if i%4 != 1 {
			id.MACs = []string{fmt.Sprintf("52:54:00:00:00:%02x", i)}
		}
		if i%4 >= 2 {
			id.UUIDs = []string{fmt.Sprintf("00000000-0000-0000-0000-%012d", i)}
		}
		if i%4 == 1 {
			id.UUIDs = nil // by name alone
		}
		overlays = append(overlays, publish(t, key, id, 64))
		if i%4 == 3 {
			id.Node = "" // the machine knows only its hardware
		}
		ids = append(ids, id)
	}
	refused := 0
	for i, id := range ids {
		for k, c := range overlays {
			_, err := All().Accept(c, b, id, Clock{RTC: issued}, Known{})
			switch code := refusal.Of(err); {
			case i == k && err != nil:
				t.Errorf("machine %d refuses its own overlay: %v", i, err)
			case i != k && code != refusal.WrongNode && code != refusal.WrongMachine:
				t.Errorf("machine %d takes overlay %d: %v", i, k, err)
			case i != k:
				refused++
			}
		}
	}
	if refused < 1000 {
		t.Errorf("%d pairs were refused, want at least 1000", refused)
	}
}

// TestClaimsThatAreNoTags: what a boot loader left unfilled keeps the machine from none of its other names.
func TestClaimsThatAreNoTags(t *testing.T) {
	id := Identity{Node: "a b", MACs: []string{"${net0/mac:hexhyp}", strings.Repeat("0", 200), "52:54:00:12:34:56"}, UUIDs: []string{"../x"}}
	src := &asked{}
	_, err := Overlay(t.Context(), src, id.Tags(), "")
	if got := strings.Join(src.tags, " "); !errors.Is(err, oci.ErrNotFound) || got != "mac-525400123456" {
		t.Errorf("the registry was asked for %q: %v", got, err)
	}
}

// asked is a registry that has nothing.
type asked struct{ tags []string }

func (a *asked) Manifest(_ context.Context, repo, tag, _ string) (oci.Response, error) {
	if err := oci.CheckName(repo, tag); err != nil {
		return oci.Response{}, err
	}
	a.tags = append(a.tags, tag)
	return oci.Response{}, oci.ErrNotFound
}

func (*asked) Blob(context.Context, string, oci.Descriptor, int64) (io.ReadCloser, error) {
	return nil, oci.ErrNotFound
}

// BenchmarkAccept decides about an overlay of 256 KiB.
func BenchmarkAccept(b *testing.B) {
	key, anchor := anchor(b)
	id := Identity{Node: "superhost", MACs: []string{"52:54:00:12:34:56"}}
	c := publish(b, key, id, 256<<10)
	b.SetBytes(int64(len(c.Document)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := All().Accept(c, anchor, id, Clock{RTC: issued}, Known{}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSavedCandidates(t *testing.T) {
	key, b := anchor(t)
	id := Identity{Node: "superhost"}
	c := publish(t, key, id, 1000)
	again, err := Load(c.Save())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := All().Accept(again, b, id, Clock{RTC: issued}, Known{}); err != nil {
		t.Errorf("a saved candidate is refused: %v", err)
	}
	// Ask with the digest that a registry has it under.
	raw, _ := oci.OverlayManifest(c.Document, c.Bundles...)
	if again.ETag != oci.Digest(raw) {
		t.Errorf("it is asked for again as %s, and is %s", again.ETag, oci.Digest(raw))
	}
	// The largest that a node accepts is kept, too.
	large := Candidate{Document: make([]byte, oci.MaxOverlay)}
	for range oci.MaxBundles {
		large.Bundles = append(large.Bundles, make([]byte, oci.MaxBundle))
	}
	if again, err := Load(large.Save()); err != nil || len(again.Document) != oci.MaxOverlay || len(again.Bundles) != oci.MaxBundles {
		t.Errorf("the largest overlay, saved in %d bytes: %d bytes and %d bundles, %v", len(large.Save()), len(again.Document), len(again.Bundles), err)
	}
	for what, data := range map[string][]byte{
		"empty": nil, "cut": c.Save()[:500], "altered": []byte(strings.Replace(string(c.Save()), `"data":"e`, `"data":"f`, 1)), "huge": make([]byte, MaxSaved+1),
	} {
		if _, err := Load(data); refusal.Of(err) == "" {
			t.Errorf("what was saved is %s: %v, want a refusal", what, err)
		}
	}
}
