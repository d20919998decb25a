// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"testing"

	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
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
