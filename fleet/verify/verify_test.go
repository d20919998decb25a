// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"crypto"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Keys of a later release are said of a node that is as it should be, and that is not.
func TestNoteLeftOut(t *testing.T) {
	for detail, want := range map[string]string{"": "left out: a[].b (of a later release)", "expired then": "expired then; left out: a[].b (of a later release)"} {
		r := &Report{Findings: []Check{{What: "node:a", Verdict: "ok", Detail: detail}}}
		r.noteLeftOut(nil)
		if got := r.Findings[0].Detail; got != detail {
			t.Errorf("nothing was left out: %q", got)
		}
		r.noteLeftOut([]string{"a[].b"})
		if got := r.Findings[0].Detail; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// heap is what is held of memory, in bytes.
func heap() int64 {
	for range 2 { // a pool gives up in the second what was in it
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestVerifyHoldsLittle: a fleet's overlays are not held while they are looked at.
func TestVerifyHoldsLittle(t *testing.T) {
	const n = 300
	in, err := registry.Open("oci:"+t.TempDir(), registry.Options{})
	must(t, err)
	key, err := sign.Generate()
	must(t, err)
	p := &publish.Publisher{Reader: published.Reader{Registry: in, Signers: []crypto.Signer{key}, Now: time.Now(), Say: t.Logf}}
	policy := published.Policy{Fleet: "metal-a", Operator: []sign.Verifier{sign.VerifierOf(key)}, Threshold: 1, Lifetime: time.Hour}
	nodes := make([]publish.Node, n)
	for i := range nodes {
		o := &spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: fmt.Sprintf("node-%06d", i)}}
		for k := range 60 {
			o.Items.Sysctl = append(o.Items.Sysctl, spec.Sysctl{Key: fmt.Sprintf("net/ipv4/conf/eth%d/forwarding", k), Value: fmt.Sprint(i)})
		}
		nodes[i] = publish.Node{Name: o.Node, Doc: func() ([]byte, error) { return spec.Encode(o) }}
	}
	_, err = p.Publish(t.Context(), policy, nodes, publish.Options{})
	must(t, err)
	fleet, err := p.Read(t.Context(), policy)
	must(t, err)
	rows, err := fleet.Nodes(t.Context())
	must(t, err)
	nodes = nil
	r := &verifying{Fleet: fleet, Report: &Report{}, in: &p.Reader, rows: rows}
	names := slices.Collect(maps.Keys(rows))
	_, err = r.viewAsNodes(t.Context(), names[:1])
	must(t, err)
	before := heap()
	views, err := r.viewAsNodes(t.Context(), names)
	must(t, err)
	if held := (heap() - before) / n; held > 400 {
		t.Errorf("%d bytes are held of a node that is verified", held)
	}
	if len(views) != n {
		t.Errorf("%d nodes", len(views))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
