// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fleettest"
)

func numberedNodes(n int) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{Name: fmt.Sprintf("node-%06d", i), Doc: func() ([]byte, error) { return numbered(i) }}
	}
	return nodes
}

// TestASignedNodeIsSmall: all nodes are signed before one is pushed. Each makes the bundle that its node's
// decision was about, and none where it is about to be another.
func TestASignedNodeIsSmall(t *testing.T) {
	const n = 500
	f, x := newFleet(t), spec.FleetIndex{Fleet: "metal-a", Grant: []byte("{}")}
	todo := make([]Work, n)
	for i, node := range numberedNodes(n) {
		todo[i] = Work{Node: Node{Name: node.Name}, Generation: 1}
		todo[i].Bundles = [][]byte{[]byte("other")}
		must(t, SetDocument(&todo[i], node.Doc))
	}
	must(t, SignNodes(f.Publisher, t.Context(), f.Policy, &x, todo[:1]))
	before := fleettest.Heap()
	must(t, SignNodes(f.Publisher, t.Context(), f.Policy, &x, todo[1:]))
	if held := (fleettest.Heap() - before) / n; held > 400 {
		t.Errorf("%d bytes are held of a node that is signed", held)
	}
	w := &todo[n-1]
	bundles, err := AllBundles(w, &x)
	if err != nil || len(bundles) != 3 || string(bundles[0]) != "other" || string(bundles[2]) != "{}" {
		t.Fatalf("%q, %v", bundles, err)
	}
	v, err := sign.VerifyOverlay(bundles, f.Policy.Operator, 1, w.Overlay)
	if err != nil || v.Predicate.Node != w.Name || !v.Predicate.Expires.Equal(f.Now.Add(f.Policy.Lifetime)) {
		t.Errorf("%+v, %v", v, err)
	}
	w.Generation++
	if _, err := AllBundles(w, &x); err == nil {
		t.Error("a bundle was made of a statement that nobody has signed")
	}
}

// TestADirectoryGivesAgain: what nodes go back to is not held where a directory has it, and what it gives
// then is what they had.
func TestADirectoryGivesAgain(t *testing.T) {
	const n, size = 24, 64 << 10
	f, random := newFleet(t), rand.NewChaCha8([32]byte{})
	large := func() (nodes []Node) {
		for i := range n {
			noise := make([]byte, size)
			_, _ = random.Read(noise) // it never fails
			o := &spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: fmt.Sprintf("n%d", i)}}
			o.Items.Sysctl = []spec.Sysctl{{Key: "kernel/domainname", Value: base64.StdEncoding.EncodeToString(noise)}}
			nodes = append(nodes, Node{Name: o.Node, Doc: func() ([]byte, error) { return spec.Encode(o) }})
		}
		return nodes
	}
	f.MustPublish(large(), Options{})
	given := map[string]string{}
	for _, line := range f.MustPublish(large(), Options{}).Published {
		given[line.Node] = line.Overlay
	}
	fleet, err := f.Read(t.Context(), f.Policy)
	must(t, err)
	before := fleettest.Heap()
	back, err := ReadyBack(t.Context(), fleet, given, spec.Floor{Generation: 1})
	must(t, err)
	if held := (fleettest.Heap() - before) / n; held > size/4 {
		t.Errorf("%d bytes are held of an overlay of %d", held, size)
	}
	if len(back.Todo()) != n {
		t.Fatalf("%d nodes go back", len(back.Todo()))
	}
	for _, w := range back.Todo() {
		if doc, err := Document(&w); err != nil || oci.Digest(doc) != w.Was.Before.Overlay {
			t.Errorf("node %s: %d bytes, %v", w.Name, len(doc), err)
		}
	}
	w := back.Todo()[0]
	must(t, os.WriteFile(filepath.Join(f.Registry.Ref().Layout, oci.BlobPath(w.Overlay)), make([]byte, w.Size), 0o644))
	if _, err := Document(&w); refusal.Of(err) != refusal.Digest {
		t.Errorf("of a directory that was changed meanwhile: %v", err)
	}
}
