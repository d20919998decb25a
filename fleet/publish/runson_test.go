// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// runsOn is what node n0 is signed for besides its layer, as the node reads it.
func (f *fleet) runsOn() []string {
	f.T.Helper()
	a, err := f.Boot()
	if err != nil {
		f.T.Fatal(err)
	}
	for _, on := range append([]string{a.Overlay.Layer, oci.Digest([]byte("another"))}, a.RunsOn...) {
		_, err := f.BootOn(on)
		if signed := on == a.Overlay.Layer || slices.Contains(a.RunsOn, on); (err == nil) != signed || !signed && refusal.Of(err) != refusal.WrongLayer {
			f.T.Errorf("on %s: %v; it is signed for %s and %q", on, err, a.Overlay.Layer, a.RunsOn)
		}
	}
	return a.RunsOn
}

// A node that was not started over since may run any layer that it was given before.
func TestRunsOn(t *testing.T) {
	f := newFleet(t)
	layers := make([]string, sign.MaxRunsOn+3)
	for i := range layers {
		layers[i] = f.Layer(fmt.Sprint(i), "default", f.Release).Digest
	}
	want := func(when string, digests ...string) {
		t.Helper()
		if got := f.runsOn(); !slices.Equal(got, digests) {
			t.Errorf("%s: runs on %q, want %q", when, got, digests)
		}
	}
	give := func(layer int, value string) *Result {
		t.Helper()
		return f.MustPublish(f.Nodes(layers[layer], value), Options{})
	}
	give(0, "10")
	want("the first")
	give(0, "20")
	want("the same layer")
	r := give(1, "20")
	want("a layer after it", layers[0])
	if len(r.Published) != 1 || !slices.Equal(r.Published[0].RunsOn, layers[:1]) {
		t.Errorf("the result says %+v", r.Published)
	}
	give(1, "30")
	want("a parameter while that waits", layers[0])
	give(2, "30")
	want("another layer while that waits", layers[1], layers[0])
	f.Now = f.Now.Add(25 * 24 * time.Hour)
	if r := give(2, "30"); len(r.Resigned) != 1 {
		t.Fatalf("%+v", r)
	}
	want("a new signature of the same", layers[1], layers[0])
	f.MustPublish(f.Nodes(layers[2], "30"), Options{All: true})
	want("a new generation of the same", layers[1], layers[0])
	f.Now = f.Now.Add(25 * 24 * time.Hour)
	if _, err := f.Refresh(t.Context(), Lists{Reject: []string{layers[1]}}); err != nil {
		t.Fatal(err)
	}
	want("a refresh", layers[1], layers[0]) // nodes read the reject list themselves
	give(2, "40")
	want("without what was rejected", layers[0])
	if err := os.Remove(filepath.Join(strings.TrimPrefix(f.Registry.Ref().String(), "oci:"), "blobs/sha256", digest.Hex(layers[0]))); err != nil {
		t.Fatal(err)
	}
	give(2, "50")
	want("without what is gone")
	for i := 3; i < len(layers); i++ {
		give(i, "50")
	}
	slices.Reverse(layers)
	want("many", layers[1:1+sign.MaxRunsOn]...)

	// What it had before: the layer that it has now may still be the one that waits.
	if _, err := hold.Rollback(t.Context(), f.Publisher, hold.Order{By: By{Reason: "why"}, All: true}, ""); err != nil {
		t.Fatal(err)
	}
	want("rolled back", slices.Concat(layers[:1], layers[2:1+sign.MaxRunsOn])...)
}

// An overlay is signed for another layer when it is what it says there, too: who owns a
// service's files must be there.
func TestRunsOnWhatSuits(t *testing.T) {
	f := newFleet(t)
	old, next := f.Layer("1", "default", f.Release).Digest, f.Layer("2", "default", f.Release).Digest
	f.MustPublish(f.Nodes(old, "10"), Options{})
	n := f.Nodes(next, "10")[0]
	n.Doc = func() ([]byte, error) {
		return spec.Encode(&spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: n.Name, Layer: next, Match: n.Match},
			Services: []spec.Service{{Name: "a", Unit: "a.service", User: "nobody-of-this-layer"}}})
	}
	f.MustPublish([]Node{n}, Options{})
	if got := f.runsOn(); got != nil {
		t.Errorf("signed for %q, which has no such user", got)
	}
	g := newFleet(t)
	g.Agent = trust.All().Without("needs") // of a later release, as that of the second layer
	old, next = g.Layer("1", "default", g.Release).Digest, g.Layer("2", "default", g.Release).Digest
	g.MustPublish(g.Nodes(old, "10"), Options{})
	n = g.Nodes(next, "10")[0]
	n.Knows, n.Doc = []string{"later"}, later(n)
	g.MustPublish([]Node{n}, Options{})
	if got := g.runsOn(); got != nil {
		t.Errorf("signed for %q, whose agent does not know later", got)
	}
}
