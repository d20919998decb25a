// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"crypto"
	"crypto/ecdsa"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/release"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// world is a fleet that is edited, built and published at random.
type world struct {
	t        *testing.T
	rand     *rand.Rand
	registry *registry.Registry
	operator *ecdsa.PrivateKey
	release  *ecdsa.PrivateKey
	now      time.Time

	nodes      []string
	swappiness map[string]int // by node
	common     int
	packages   []string
	versions   int // of packages in the archive: an update without an edit
	mac        int
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	r, err := registry.Open("oci:"+t.TempDir()+"/out", registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, rand: rand.New(rand.NewPCG(seed, 1)), registry: r, now: time.Now().UTC().Truncate(time.Second),
		nodes: []string{"a", "b", "c"}, swappiness: map[string]int{}, packages: []string{"jq"}}
	for _, k := range []**ecdsa.PrivateKey{&w.operator, &w.release} {
		if *k, err = sign.Generate(); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) site() *site.Site {
	w.t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal-a}\nlayer: {base: {debian: {suite: trixie, components: [main]}}, kernel: {package: linux-image-amd64}}\nnodes:\n")
	for _, n := range w.nodes {
		fmt.Fprintf(&b, "  - {name: %s, match: {macs: [\"52:54:00:00:%02x:%02x\"]}}\n", n, w.mac, n[0])
	}
	fmt.Fprintf(&b, "conf:\n  sysctl: {vm.swappiness: %d}\n  apt: {packages: [{name: %s}]}\n  overrides:\n    divingbell_sysctl: {hosts: [", w.common, strings.Join(w.packages, "}, {name: "))
	for _, n := range w.nodes {
		if v, ok := w.swappiness[n]; ok {
			fmt.Fprintf(&b, "{name: %s, conf: {sysctl: {vm.swappiness: %d}}}, ", n, v)
		}
	}
	b.WriteString("]}\n")
	s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(b.String())}}, "site.yaml")
	if err := found.Err(); err != nil {
		w.t.Fatalf("%v\n%s", err, b.String())
	}
	return s
}

// edit changes the site, or nothing, in a way that a person might.
func (w *world) edit() {
	switch w.rand.IntN(8) {
	case 0:
		w.common = w.rand.IntN(3)
	case 1:
		w.swappiness[w.nodes[w.rand.IntN(len(w.nodes))]] = w.rand.IntN(3)
	case 2:
		delete(w.swappiness, w.nodes[w.rand.IntN(len(w.nodes))])
	case 3:
		w.packages = [][]string{{"jq"}, {"jq", "tree"}, {"tree"}}[w.rand.IntN(3)]
	case 4:
		if n := string(rune('a' + w.rand.IntN(6))); !slices.Contains(w.nodes, n) {
			w.nodes = append(w.nodes, n)
		}
	case 5:
		if len(w.nodes) > 1 {
			i := w.rand.IntN(len(w.nodes))
			w.nodes = slices.Delete(w.nodes, i, i+1)
		}
	case 6:
		w.mac = w.rand.IntN(2)
	}
}

// build makes the site's layers current, with the archive's present versions.
func (w *world) build(s *site.Site) {
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
		l := spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: s.Name(), Version: version, Variant: v.Name, Features: spec.Features(),
			Recipe: oci.Digest(recipe), Arch: "amd64", Created: w.now.Format(time.RFC3339), Images: []spec.Image{}, Kernel: spec.KernelBlob{Release: "6.12.1-amd64"}}
		for _, x := range v.Recipe.Packages.Install {
			l.Packages = append(l.Packages, spec.InstalledPackage{Name: x.Name, Version: version, Arch: "amd64"})
		}
		d, err := p.Push(w.t.Context(), &builder.Result{Layer: l, Recipe: recipe}, "trixie")
		if err != nil {
			w.t.Fatal(err)
		}
		entries = append(entries, d)
	}
	if _, err := p.Index(w.t.Context(), entries, s.Name(), version); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) publisher() (*publish.Publisher, publish.Policy) {
	policy := publish.Policy{Site: true, Fleet: "metal-a", Threshold: 1, Lifetime: 30 * 24 * time.Hour,
		Operator: []sign.Verifier{sign.VerifierOf(w.operator)}, Release: []sign.Verifier{sign.VerifierOf(w.release)}}
	return &publish.Publisher{Registry: w.registry, Signers: []crypto.Signer{w.operator}, Now: w.now, Say: w.t.Logf}, policy
}

// publish does what the verb does; ok is false where a layer has to be built.
func (w *world) publish(s *site.Site) (changed []string, ok bool) {
	w.t.Helper()
	p, policy := w.publisher()
	nodes, err := p.Compile(w.t.Context(), s, policy, release.Current)
	if err != nil {
		return nil, false
	}
	before, err := p.Read(w.t.Context(), policy)
	if err != nil {
		w.t.Fatal(err)
	}
	result, err := p.Publish(w.t.Context(), policy, nodes, publish.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range result.Published {
		changed = append(changed, n.Node)
	}
	for name := range before.Nodes() {
		if !s.Has(name) {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return changed, true
}

func (w *world) plan(s *site.Site) *plan.Plan {
	w.t.Helper()
	p, policy := w.publisher()
	got, err := (Preview{Site: s, Publisher: p, Policy: policy, Layer: release.Current}).Plan(w.t.Context(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// TestPlanIsWhatPublishDoes edits, builds and publishes at random. What a plan
// says is what the publish after it does, node by node, and a plan without
// changes is followed by a publish without any.
func TestPlanIsWhatPublishDoes(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(4) {
		w := newWorld(t, seed)
		for range 20 {
			w.edit()
			s := w.site()
			if w.rand.IntN(2) == 0 {
				w.build(s)
			}
			p := w.plan(s)
			var planned []string
			for _, n := range p.Nodes {
				if len(n.Changes) > 0 {
					planned = append(planned, n.Name)
				}
			}
			build := slices.ContainsFunc(p.Layers, func(l plan.LayerPlan) bool { return l.Action == plan.ActionBuild })
			w.now = w.now.Add(time.Second)
			changed, ok := w.publish(s)
			switch {
			case ok == build:
				t.Fatalf("seed %d: a layer is to be built: %v, publish took what is there: %v", seed, build, ok)
			case !ok:
				seen["to be built"]++
			case !slices.Equal(planned, changed):
				t.Fatalf("seed %d: planned %q, publish changed %q", seed, planned, changed)
			case p.Changed() != (len(changed) > 0):
				t.Fatalf("seed %d: Changed() is %v, publish changed %q", seed, p.Changed(), changed)
			case len(changed) == 0:
				seen["nothing"]++
			default:
				seen["changes"]++
			}
			if ok {
				if again := w.plan(s); again.Changed() {
					t.Fatalf("seed %d: published, and the plan still has %+v", seed, again)
				}
			}
		}
	}
	for _, what := range []string{"to be built", "nothing", "changes"} {
		if seen[what] < 3 {
			t.Errorf("%d rounds ended in %q: it tests nothing", seen[what], what)
		}
	}
}
