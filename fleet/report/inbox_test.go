// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/registrytest"
)

// counted counts what is asked.
type counted struct {
	oci.Source
	mu     sync.Mutex
	asked  []string
	whole  int // manifests that were sent
	broken error
	bad    string // the one reference that cannot be read
}

func (c *counted) Manifest(ctx context.Context, repo, reference, etag string) (oci.Response, error) {
	c.mu.Lock()
	c.asked = append(c.asked, reference)
	broken := c.broken
	c.mu.Unlock()
	if reference == c.bad {
		return oci.Response{}, errors.New("500")
	}
	if broken != nil {
		return oci.Response{}, broken
	}
	resp, err := c.Source.Manifest(ctx, repo, reference, etag)
	if err == nil && !resp.NotModified {
		c.mu.Lock()
		c.whole++
		c.mu.Unlock()
	}
	return resp, err
}

// rig is a registry with reports, and the fleet that they are of.
type rig struct {
	*testing.T
	reg  *registry.Registry
	src  *counted
	hub  *hub.Hub
	box  *report.Inbox
	now  time.Time
	keys map[string]*ecdsa.PrivateKey
}

func newRig(t *testing.T, nodes ...string) *rig {
	t.Helper()
	reg, err := registry.Open(registrytest.Distribution(t)+"/metal", registry.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, reg: reg, src: &counted{Source: reg.Source()}, now: time.Now().UTC().Truncate(time.Second), keys: map[string]*ecdsa.PrivateKey{}}
	rows := index.Rows{}
	for _, n := range nodes {
		rows[n] = spec.Published{Overlay: digest, Layer: digest, Generation: 1}
	}
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "fleet.db"))
	if err != nil {
		t.Fatal(err)
	}
	r.hub, err = hub.Open(t.Context(), hub.Options{Store: db, Say: t.Logf, Now: func() time.Time { return r.now },
		Index: func(context.Context, string) (hub.Published, error) {
			return hub.Published{Fleet: "f", Floor: spec.Floor{Generation: 1}, Root: "r", Rows: rows}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.hub.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, db.Close()); err != nil {
			t.Error(err)
		}
	})
	r.box = &report.Inbox{From: r.src, Take: r.hub.Stored, Refuses: func(err error) bool {
		var refused *hub.RefusedError
		return errors.As(err, &refused)
	}}
	return r
}

var digest = "sha256:" + strings.Repeat("a", 64)

// sealed is a report, signed by a key of that name.
func (r *rig) sealed(key, node string, seq uint64, change func(*spec.Report)) []byte {
	r.Helper()
	if r.keys[key] == nil {
		k, err := sign.Generate()
		if err != nil {
			r.Fatal(err)
		}
		r.keys[key] = k
	}
	one := spec.NewReport(&spec.Status{Fleet: "f", Node: node, BootID: "b", Health: spec.HealthOK, Sync: spec.SyncCurrent, Tracking: spec.Following, Generation: 1, Overlay: digest, Layer: digest})
	one.Key, one.Grade, one.Seq, one.Time, one.Interval = sign.VerifierOf(r.keys[key]).ID(), spec.KeyPinned, seq, r.now, 3600
	if change != nil {
		change(one)
	}
	data, err := one.Encode()
	if err != nil {
		r.Fatal(err)
	}
	raw, err := sign.SignReport(r.keys[key], data)
	if err != nil {
		r.Fatal(err)
	}
	return raw
}

// put puts a document under a tag, as a thief of a node's credential can.
func (r *rig) put(tag, kind string, doc []byte) {
	r.Helper()
	raw, blobs := oci.DocumentManifest(kind, doc)
	for _, b := range blobs {
		if err := r.reg.PutData(r.Context(), oci.RepoReport, b); err != nil {
			r.Fatal(err)
		}
	}
	if _, err := r.reg.PutManifest(r.Context(), oci.RepoReport, oci.MediaTypeManifest, raw, tag); err != nil {
		r.Fatal(err)
	}
}

// read reads all reports and returns why some do not count.
func (r *rig) read() map[string]error {
	r.Helper()
	var names []string
	for _, n := range r.hub.Nodes() {
		names = append(names, n.Name)
	}
	refused, err := r.box.Read(r.Context(), names, len(names))
	if err != nil {
		r.Fatal(err)
	}
	return refused
}

func (r *rig) node(name string) *view.Node {
	for _, n := range r.hub.Nodes() {
		if n.Name == name {
			return n.Node
		}
	}
	return nil
}

// TestRead: a report counts once, from the time that it names on; what has not changed
// is asked for and not sent again.
func TestRead(t *testing.T) {
	r := newRig(t, "n1", "n2", "n3")
	r.put("n1", oci.TypeReport, r.sealed("k1", "n1", 7, nil))
	r.put("n2", oci.TypeReport, r.sealed("k2", "n2", 7, func(one *spec.Report) { one.Time = r.now.Add(-4 * time.Hour) }))
	r.put("stranger", oci.TypeReport, []byte("{}"))
	if refused := r.read(); len(refused) != 0 {
		t.Fatal(refused)
	}
	for name, want := range map[string]view.Condition{"n1": view.Fine, "n2": view.Silent, "n3": view.Never} {
		if got, why := r.node(name).Condition(r.now); got != want {
			t.Errorf("%s is %s: %s", name, got, why)
		}
	}
	if slices.Sort(r.src.asked); !slices.Equal(r.src.asked, []string{"n1", "n2", "n3"}) {
		t.Errorf("asked for %s", r.src.asked)
	}
	whole := r.src.whole
	if refused := r.read(); len(refused) != 0 || r.src.whole != whole {
		t.Errorf("the second time: %v, %d sent again", refused, r.src.whole-whole)
	}
	r.box = &report.Inbox{From: r.src, Take: r.box.Take, Refuses: r.box.Refuses} // a service that starts again
	if refused := r.read(); len(refused) != 0 {
		t.Errorf("after a start: %v", refused)
	}
}

// TestStolenCredential: who may write where nodes put their reports can hide what a node
// says, until the node says it again, and nothing else.
func TestStolenCredential(t *testing.T) {
	r := newRig(t, "n1", "n2")
	old := r.sealed("k1", "n1", 7, nil)
	r.put("n1", oci.TypeReport, r.sealed("k1", "n1", 8, func(one *spec.Report) { one.Axes.Health.State = "degraded" }))
	r.put("n2", oci.TypeReport, r.sealed("k2", "n2", 7, nil))
	r.read()
	forged := r.sealed("k1", "n1", 9, nil)
	forged = bytes.Replace(forged, []byte(`"sig":"M`), []byte(`"sig":"N`), 1)
	for what, row := range map[string]struct {
		kind string
		doc  []byte
		want string
	}{
		"played back":           {oci.TypeReport, old, "number 7 was taken before"},
		"a forged signature":    {oci.TypeReport, forged, "signature"},
		"another node's":        {oci.TypeReport, r.sealed("k2", "n2", 9, nil), "stored for node n1"},
		"under its name":        {oci.TypeReport, r.sealed("k2", "n1", 9, nil), "belongs to another node"},
		"too large":             {oci.TypeReport, bytes.Repeat([]byte("x"), sign.MaxReport+1), "the cap is 16384"},
		"nothing of a report":   {oci.TypeReport, []byte("{}"), "signatures"},
		"an overlay":            {oci.TypeOverlay, r.sealed("k1", "n1", 9, nil), "artifact"},
		"of another fleet":      {oci.TypeReport, r.sealed("k1", "n1", 9, func(one *spec.Report) { one.Fleet = "g" }), `report for fleet "g"`},
		"a manifest, very long": {oci.TypeReport, bytes.Repeat([]byte("x"), 700<<10), "the cap is 16384"},
	} {
		r.put("n1", row.kind, row.doc)
		err := r.read()["n1"]
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", what, err)
		}
		if got, _ := r.node("n1").Condition(r.now); got != view.Degraded {
			t.Errorf("%s: n1 is %s", what, got)
		}
		if got, why := r.node("n2").Condition(r.now); got != view.Fine {
			t.Errorf("%s: n2 is %s: %s", what, got, why)
		}
	}
	// A key of his own is shown, and says nothing.
	r.put("n1", oci.TypeReport, r.sealed("thief", "n1", 99, nil))
	if refused := r.read(); len(refused) != 0 || r.node("n1").Offered == nil || r.node("n1").Report.Axes.Health.State != "degraded" {
		t.Errorf("%v, %+v", refused, r.node("n1"))
	}
	r.put("n1", oci.TypeReport, r.sealed("k1", "n1", 10, nil))
	r.read()
	if got := r.node("n1").Report.Axes.Health.State; got != "ok" {
		t.Errorf("the node's next word: %s", got)
	}
}

// TestInTurn: each look asks for some, the next for those that follow, whatever fails.
func TestInTurn(t *testing.T) {
	r := newRig(t)
	var nodes []string
	for i := range 7 {
		nodes = append(nodes, fmt.Sprint("n", i))
	}
	look := func() []string {
		t.Helper()
		r.src.asked = nil
		if _, err := r.box.Read(t.Context(), nodes, 3); err != nil && r.src.bad == "" {
			t.Fatal(err)
		}
		slices.Sort(r.src.asked)
		return r.src.asked
	}
	all := map[string]int{}
	for range 7 {
		for _, n := range look() {
			all[n]++
		}
	}
	if fmt.Sprint(slices.Sorted(maps.Values(all))) != "[3 3 3 3 3 3 3]" {
		t.Errorf("asked for %v", all)
	}
	// One that cannot be read keeps no other from being read, in its turn or after it.
	r.src.bad = "n1"
	all = map[string]int{}
	for range 7 {
		for _, n := range look() {
			all[n]++
		}
	}
	if fmt.Sprint(slices.Sorted(maps.Values(all))) != "[3 3 3 3 3 3 3]" {
		t.Errorf("beside one that cannot be read: %v", all)
	}
	// A registry that is away is not asked for every node.
	r.src.bad, r.src.broken, r.src.asked = "", errors.New("no route"), nil
	nodes = nil
	for i := range 500 {
		nodes = append(nodes, fmt.Sprintf("m%03d", i))
	}
	if err := r.box.Trouble(); err != nil {
		t.Errorf("before that: %v", err)
	}
	if _, err := r.box.Read(t.Context(), nodes, len(nodes)); err == nil || !strings.Contains(err.Error(), "no route") || len(r.src.asked) > 20 {
		t.Errorf("asked %d times: %v", len(r.src.asked), err)
	}
	if err := r.box.Trouble(); err == nil || !strings.Contains(err.Error(), "no route") {
		t.Errorf("its trouble: %v", err)
	}
	r.src.broken = nil
	if _, err := r.box.Read(t.Context(), nil, 3); err != nil || r.box.Trouble() != nil {
		t.Error(err, r.box.Trouble())
	}
}
