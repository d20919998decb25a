// SPDX-License-Identifier: Apache-2.0

// Package fleettest is a published fleet for tests of what publishes and holds, and of what signs again:
// a layout with keys for every role, small nodes and layers, and a node that asks.
//
// Only tests import it.
package fleettest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/verify"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// Start is the time of a new fleet.
var Start = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// Fleet is a layout with keys for every role.
type Fleet struct {
	*publish.Publisher
	T                                   testing.TB
	Operator, Release, Attestation, Top *ecdsa.PrivateKey
	Policy                              published.Policy
	Floor                               spec.Floor
}

// New makes one that nothing is published in.
func New(t testing.TB) *Fleet {
	t.Helper()
	r, err := registry.Open("oci:"+t.TempDir(), registry.Options{})
	must(t, err)
	f := &Fleet{T: t}
	for _, k := range []**ecdsa.PrivateKey{&f.Operator, &f.Release, &f.Attestation, &f.Top} {
		*k, err = sign.Generate()
		must(t, err)
	}
	m, err := published.OpenMemory(filepath.Join(t.TempDir(), "memory"))
	must(t, err)
	f.Publisher = &publish.Publisher{Reader: published.Reader{Memory: m, Registry: r, Signers: []crypto.Signer{f.Operator}, Now: Start, Say: t.Logf}}
	f.Policy = published.Policy{
		Fleet: "metal-a", Threshold: 1, Lifetime: 30 * 24 * time.Hour,
		Operator: []sign.Verifier{sign.VerifierOf(f.Operator)},
		Release:  []sign.Verifier{sign.VerifierOf(f.Release)},
		Epoch:    []sign.Verifier{sign.VerifierOf(f.Top)},
	}
	return f
}

// SignLayer signs a layer, in the form of cosign sign.
func (f *Fleet) SignLayer(manifest []byte, by crypto.Signer) {
	f.T.Helper()
	bundle, err := sign.SignArtifact(by, oci.Digest(manifest))
	must(f.T, err)
	f.Attach(manifest, bundle)
}

// Attach puts a signature beside a layer.
func (f *Fleet) Attach(manifest, bundle []byte) {
	f.T.Helper()
	must(f.T, release.Attach(f.T.Context(), f.Registry, oci.Describe(oci.MediaTypeManifest, manifest), release.Bundle{Data: bundle, Predicate: sign.PredicateCosign, At: f.Now}))
}

// Layer pushes a layer that holds nothing; by signs it unless it is nil.
func (f *Fleet) Layer(version, variant string, by *ecdsa.PrivateKey) oci.Descriptor {
	f.T.Helper()
	return f.LayerOf(version, variant, "", by)
}

// LayerOf is Layer with the time of its build.
func (f *Fleet) LayerOf(version, variant, created string, by *ecdsa.PrivateKey) oci.Descriptor {
	f.T.Helper()
	return f.LayerAs(spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "metal-a", Version: version, Variant: variant, Arch: "amd64", Created: created, Images: []spec.Image{}}, by)
}

// LayerAs pushes a layer as it is described; by signs it unless it is nil.
func (f *Fleet) LayerAs(l spec.Layer, by *ecdsa.PrivateKey) oci.Descriptor {
	f.T.Helper()
	config, err := spec.Encode(l)
	must(f.T, err)
	d := oci.Describe(oci.TypeLayerConfig, config)
	must(f.T, f.Registry.PutData(f.T.Context(), "layer", d))
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer, Config: d.Bare(), Layers: []oci.Descriptor{}})
	_, err = f.Registry.PutManifest(f.T.Context(), "layer", oci.MediaTypeManifest, raw)
	must(f.T, err)
	if by != nil {
		f.SignLayer(raw, by)
	}
	return oci.Describe(oci.MediaTypeManifest, raw).Bare()
}

// Nodes returns one with each value: n0, n1 and so on.
func (f *Fleet) Nodes(layer string, values ...string) []publish.Node {
	var nodes []publish.Node
	for i, v := range values {
		o := &spec.Overlay{
			Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: fmt.Sprintf("n%d", i), Layer: layer, Variant: "default",
				Match: spec.Match{MACs: []string{fmt.Sprintf("52:54:00:00:00:%02x", i)}}},
			Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: v}}},
		}
		nodes = append(nodes, publish.Node{Name: o.Node, Match: o.Match, Layer: layer, Doc: func() ([]byte, error) { return spec.Encode(o) }})
	}
	return nodes
}

// Whole is an index with all its rows.
type Whole struct {
	spec.FleetIndex
	Nodes index.Rows
}

// Index reads what is published.
func (f *Fleet) Index() (*Whole, error) {
	v, err := f.Open(f.T.Context(), f.Policy, published.Purpose{Publish: true})
	if err != nil {
		return nil, err
	}
	x := Whole{FleetIndex: v.State().Index.Root}
	x.Nodes, err = v.Nodes(f.T.Context())
	return &x, err
}

// MustPublish publishes nodes.
func (f *Fleet) MustPublish(nodes []publish.Node, o publish.Options) *publish.Result {
	f.T.Helper()
	r, err := f.Publish(f.T.Context(), f.Policy, nodes, o)
	must(f.T, err)
	return r
}

// Boot is node n0 asking by its MAC address alone. It keeps a floor.
func (f *Fleet) Boot() (*trust.Accepted, error) { return f.BootOn("") }

// BootOn is Boot where another layer is stacked than the overlay names.
func (f *Fleet) BootOn(layer string) (*trust.Accepted, error) {
	id := trust.Identity{MACs: []string{"52:54:00:00:00:00"}}
	c, err := trust.Overlay(f.T.Context(), f.Registry.Source(), id.Tags(), "")
	if err != nil {
		return nil, err
	}
	b := spec.Bootstrap{Fleet: "metal-a", Keys: sign.PEMs(f.Policy.Operator), Threshold: f.Policy.Threshold, EpochKeys: sign.PEMs([]sign.Verifier{sign.VerifierOf(f.Top)})}
	a, err := f.AgentRules().Accept(c, b, id, trust.Clock{RTC: f.Now}, trust.Known{Floor: f.Floor, On: layer})
	if err == nil {
		f.Floor = a.Floor
	}
	return a, err
}

// MustBoot wants n0 to boot what a generation gave it.
func (f *Fleet) MustBoot(generation uint64, layer string) {
	f.T.Helper()
	a, err := f.Boot()
	must(f.T, err)
	if a.Floor.Generation != generation || a.Overlay.Layer != layer {
		f.T.Fatalf("node runs generation %d, layer %s; want %d, %s", a.Floor.Generation, a.Overlay.Layer, generation, layer)
	}
}

// Values is what three nodes take, as in "10 10 20"; "-" is nothing.
func (f *Fleet) Values() string {
	f.T.Helper()
	var list []string
	for i := range 3 {
		c, err := trust.Overlay(f.T.Context(), f.Registry.Source(), []string{fmt.Sprintf("n%d", i)}, "")
		if errors.Is(err, oci.ErrNotFound) {
			list = append(list, "-")
			continue
		}
		must(f.T, err)
		var o spec.Overlay
		must(f.T, spec.Decode(c.Document, &o))
		list = append(list, o.Items.Sysctl[0].Value)
	}
	return strings.Join(list, " ")
}

// Gives publishes one value for three nodes.
func (f *Fleet) Gives(ctx context.Context, value string, o publish.Options) error {
	_, err := f.Publish(ctx, f.Policy, f.Nodes("", value, value, value), o)
	return err
}

// IsGreen wants all that is published to be as nodes take it.
func (f *Fleet) IsGreen(values string) {
	f.T.Helper()
	report, err := verify.Fleet(f.T.Context(), &f.Reader, f.Policy, nil, false)
	if err != nil || !report.OK() {
		f.T.Errorf("nodes have %s: %+v, %v", values, report, err)
	}
}

// Heap is what is held of memory, in bytes.
func Heap() int64 {
	for range 2 { // a pool gives up in the second what was in it
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
