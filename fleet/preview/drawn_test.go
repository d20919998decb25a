// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// drawn is a fleet that is edited, built and published at random. What its site says is
// of the test that embeds it.
type drawn struct {
	t        *testing.T
	seed     uint64
	rand     *rand.Rand
	registry *registry.Registry
	operator *ecdsa.PrivateKey
	top      *ecdsa.PrivateKey
	release  *ecdsa.PrivateKey
	now      time.Time

	nodes    []string
	mac      int
	versions int                    // of packages in the archive: an update without an edit
	made     map[string]spec.Recipe // by the layer's digest
}

func draw(t *testing.T, seed uint64) drawn {
	t.Helper()
	r, err := registry.Open("oci:"+t.TempDir()+"/out", registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := drawn{t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), registry: r, now: time.Now().UTC().Truncate(time.Second),
		nodes: []string{"a", "b", "c"}, made: map[string]spec.Recipe{}}
	for _, k := range []**ecdsa.PrivateKey{&w.operator, &w.release, &w.top} {
		if *k, err = sign.Generate(); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// join adds a node, unless the one that is drawn is there.
func (w *drawn) join() {
	if n := string(rune('a' + w.rand.IntN(6))); !slices.Contains(w.nodes, n) {
		w.nodes = append(w.nodes, n)
	}
}

// leave takes a node away, but for the last.
func (w *drawn) leave() {
	if len(w.nodes) > 1 {
		i := w.rand.IntN(len(w.nodes))
		w.nodes = slices.Delete(w.nodes, i, i+1)
	}
}

// build makes the site's layers current, with the archive's present versions.
func (w *drawn) build(s *site.Site) {
	w.t.Helper()
	if w.rand.IntN(3) == 0 {
		w.versions++
	}
	variants, err := s.Variants()
	if err != nil {
		w.t.Fatal(err)
	}
	p := release.Pusher{Registry: w.registry, Release: w.release, Now: w.now}
	version := fmt.Sprintf("v%d", w.versions)
	var entries []oci.Descriptor
	for _, v := range variants {
		recipe, err := spec.Encode(v.Recipe)
		if err != nil {
			w.t.Fatal(err)
		}
		l := spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: s.Name(), Version: version, Variant: v.Name,
			Recipe: oci.Digest(recipe), Arch: "amd64", Created: w.now.Format(time.RFC3339), Images: []spec.Image{},
			Kernel: spec.KernelBlob{Release: "6.12.1" + strings.TrimPrefix(v.Recipe.Kernel, "linux-image")}}
		for _, x := range v.Recipe.Packages.Install {
			l.Packages = append(l.Packages, spec.InstalledPackage{Name: x.Name, Version: cmp.Or(x.Version, version), Arch: "amd64"})
		}
		for _, x := range v.Recipe.AppArmor.Profiles {
			mode := "enforce"
			if v.Recipe.AppArmor.Complain {
				mode = "complain"
			}
			l.AppArmor.Profiles = append(l.AppArmor.Profiles, spec.LoadedProfile{Name: x.File, Mode: mode})
		}
		d, err := p.Push(w.t.Context(), &builder.Result{Layer: l, Recipe: recipe}, "trixie")
		if err != nil {
			w.t.Fatal(err)
		}
		w.made[d.Digest] = v.Recipe
		entries = append(entries, d)
	}
	if _, err := p.Index(w.t.Context(), entries, nil, s.Name(), version); err != nil {
		w.t.Fatal(err)
	}
}

// publisher has the policy of a site, and signs with the operator's key.
func (w *drawn) publisher() (*publish.Publisher, published.Policy) {
	policy := published.Policy{Site: true, Fleet: "metal-a", Threshold: 1, Lifetime: 30 * 24 * time.Hour,
		Operator: []sign.Verifier{sign.VerifierOf(w.operator)}, Release: []sign.Verifier{sign.VerifierOf(w.release)},
		Epoch: []sign.Verifier{sign.VerifierOf(w.top)}}
	return &publish.Publisher{Reader: published.Reader{Registry: w.registry, Signers: []crypto.Signer{w.operator}, Now: w.now, Say: w.t.Logf}}, policy
}

// publish does what the verb does; ok is false where a layer has to be built.
func (w *drawn) publish(s *site.Site, o publish.Options) (nodes []publish.Node, changed []string, ok bool) {
	w.t.Helper()
	p, policy := w.publisher()
	nodes, err := p.Compile(w.t.Context(), s, policy, release.Current)
	if err != nil {
		return nil, nil, false
	}
	result, err := p.Publish(w.t.Context(), policy, nodes, o)
	if err != nil {
		w.t.Fatal(err)
	}
	changed = result.Left
	for _, n := range result.Published {
		changed = append(changed, n.Node)
	}
	for _, n := range result.Ended {
		changed = append(changed, n.Node)
	}
	slices.Sort(changed)
	return nodes, slices.Compact(changed), true
}

func (w *drawn) plan(s *site.Site) *plan.Plan {
	w.t.Helper()
	p, policy := w.publisher()
	got, err := (Preview{Site: s, Publisher: p, Policy: policy, Layer: release.Current}).Plan(w.t.Context(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// round plans and publishes a second later, and holds the plan to what the publish did.
func (w *drawn) round(s *site.Site, seen map[string]int) (p *plan.Plan, nodes []publish.Node, ok bool) {
	w.t.Helper()
	w.now = w.now.Add(time.Second)
	p = w.plan(s)
	var planned []string
	for _, n := range p.Nodes {
		if len(n.Changes) > 0 {
			planned = append(planned, n.Name)
		}
	}
	build := slices.ContainsFunc(p.Layers, func(l plan.LayerPlan) bool { return l.Action == plan.ActionBuild })
	nodes, changed, ok := w.publish(s, publish.Options{})
	switch {
	case ok == build:
		w.t.Fatalf("seed %d: a layer is to be built: %v, publish took what is there: %v", w.seed, build, ok)
	case !ok:
		seen["to be built"]++
	case !slices.Equal(planned, changed):
		w.t.Fatalf("seed %d: planned %q, publish changed %q", w.seed, planned, changed)
	case p.Changed() != (len(changed) > 0):
		w.t.Fatalf("seed %d: Changed() is %v, publish changed %q", w.seed, p.Changed(), changed)
	case len(changed) == 0:
		seen["nothing"]++
	default:
		seen["changes"]++
	}
	return p, nodes, ok
}

// settled wants a plan without changes.
func (w *drawn) settled(s *site.Site) {
	w.t.Helper()
	if again := w.plan(s); again.Changed() {
		w.t.Fatalf("seed %d: published, and the plan still has %+v", w.seed, again)
	}
}
