// SPDX-License-Identifier: Apache-2.0

package hold_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fleettest"
)

// A node whose earlier layer is gone, or on the reject list, stays as it is, and what is
// missing is named once for all such nodes. The others go back.
func TestBackWithoutItsLayer(t *testing.T) {
	f := fleettest.New(t)
	here, gone := f.Layer("1", "default", f.Release).Digest, "sha256:"+strings.Repeat("0", 64)
	nodes := func(value string, layers ...string) (all []publish.Node) {
		for i, l := range layers {
			all = append(all, f.Nodes(l, value, value, value)[i])
		}
		return all
	}
	named := publish.Options{LayerNamed: true}
	f.MustPublish(nodes("10", here, gone, gone), named)
	given := map[string]string{}
	for _, n := range f.MustPublish(nodes("20", here, here, here), named).Published {
		given[n.Node] = n.Overlay
	}
	back := func() *hold.Back {
		t.Helper()
		fleet, err := f.Read(t.Context(), f.Policy)
		must(t, err)
		b, err := hold.ReadyBack(t.Context(), fleet, given, spec.Floor{Generation: 1})
		must(t, err)
		return b
	}
	b := back()
	if len(b.Work) != 1 || b.Work[0].Name != "n0" || len(b.Stay) != 2 || !strings.HasPrefix(b.Stay["n2"], "it cannot go back: layer:"+gone) {
		t.Errorf("%d go back, %v stay", len(b.Work), b.Stay)
	}
	if b.Lost == nil || !strings.Contains(b.Lost.Error(), gone) || !strings.Contains(b.Lost.Error(), "(node n1 and 1 more)") {
		t.Errorf("lost: %v", b.Lost)
	}
	must(t, ignore(f.Refresh(t.Context(), publish.Lists{Reject: []string{here}})))
	if b = back(); len(b.Work) != 0 || !strings.Contains(b.Stay["n0"], "is on the reject list") || refusal.Of(b.Lost) != "" {
		t.Errorf("of what is rejected: %d go back, %v stay, %v", len(b.Work), b.Stay, b.Lost)
	}
}

// TestADirectoryGivesAgain: what nodes go back to is not held where a directory has it, and what it gives
// then is what they had.
func TestADirectoryGivesAgain(t *testing.T) {
	const n, size = 24, 64 << 10
	f, random := fleettest.New(t), rand.NewChaCha8([32]byte{})
	large := func() (nodes []publish.Node) {
		for i := range n {
			noise := make([]byte, size)
			_, _ = random.Read(noise) // it never fails
			o := &spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: fmt.Sprintf("n%d", i)}}
			o.Items.Sysctl = []spec.Sysctl{{Key: "kernel/domainname", Value: base64.StdEncoding.EncodeToString(noise)}}
			nodes = append(nodes, publish.Node{Name: o.Node, Doc: func() ([]byte, error) { return spec.Encode(o) }})
		}
		return nodes
	}
	f.MustPublish(large(), publish.Options{})
	given := map[string]string{}
	for _, line := range f.MustPublish(large(), publish.Options{}).Published {
		given[line.Node] = line.Overlay
	}
	fleet, err := f.Read(t.Context(), f.Policy)
	must(t, err)
	before := fleettest.Heap()
	back, err := hold.ReadyBack(t.Context(), fleet, given, spec.Floor{Generation: 1})
	must(t, err)
	if held := (fleettest.Heap() - before) / n; held > size/4 {
		t.Errorf("%d bytes are held of an overlay of %d", held, size)
	}
	if len(back.Work) != n {
		t.Fatalf("%d nodes go back", len(back.Work))
	}
	for _, w := range back.Work {
		if doc, err := w.Doc(); err != nil || oci.Digest(doc) != w.Was.Before.Overlay {
			t.Errorf("node %s: %d bytes, %v", w.Name, len(doc), err)
		}
	}
	w := back.Work[0]
	must(t, os.WriteFile(filepath.Join(f.Registry.Ref().Layout, oci.BlobPath(w.Overlay)), make([]byte, w.Size), 0o644))
	if _, err := w.Doc(); refusal.Of(err) != refusal.Digest {
		t.Errorf("of a directory that was changed meanwhile: %v", err)
	}
}
