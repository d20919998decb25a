// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/test/fixture"
)

const generations = 30

// number reads that of a generation out of a text, 0 where there is none.
func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// settings are changes of each kind. A generation brings one; that it has come, by the node or its layer, is told by
// has. Those of a layer come together, and a later one takes the place of an earlier.
var settings = map[string]struct {
	part string
	give func(o *spec.Overlay, n string)
	has  func(k *sandbox.Kept, n string) bool
}{
	"argument": {"kernelArgs", func(o *spec.Overlay, n string) { o.KernelArgs = append(o.KernelArgs, "planted="+n) },
		func(k *sandbox.Kept, n string) bool { return slices.Contains(k.Overlay.KernelArgs, "planted="+n) }},
	"sysctl": {"sysctl/vm.plantedN", func(o *spec.Overlay, n string) {
		o.Items.Sysctl = append(o.Items.Sysctl, spec.Sysctl{Key: "vm/planted" + n, Value: n})
	}, func(k *sandbox.Kept, n string) bool {
		return slices.Contains(k.Overlay.Items.Sysctl, spec.Sysctl{Key: "vm/planted" + n, Value: n})
	}},
	"file": {"files//etc/plantedN", func(o *spec.Overlay, n string) {
		o.Items.Files = append(o.Items.Files, spec.File{Path: "/etc/planted" + n})
	}, func(k *sandbox.Kept, n string) bool {
		return slices.ContainsFunc(k.Overlay.Items.Files, func(f spec.File) bool { return f.Path == "/etc/planted"+n })
	}},
	"unit": {"units/plantedN.service", func(o *spec.Overlay, n string) {
		o.Items.Units = append(o.Items.Units, spec.Unit{Name: "planted" + n + ".service", State: "masked"})
	}, func(k *sandbox.Kept, n string) bool {
		return slices.ContainsFunc(k.Overlay.Items.Units, func(u spec.Unit) bool { return u.Name == "planted"+n+".service" })
	}},
	"script": {"exec/plantedN", func(o *spec.Overlay, n string) {
		o.Items.Exec = append(o.Items.Exec, spec.Exec{Name: "planted" + n, Data: "#!/bin/sh\n"})
	}, func(k *sandbox.Kept, n string) bool {
		return slices.ContainsFunc(k.Overlay.Items.Exec, func(e spec.Exec) bool { return e.Name == "planted"+n })
	}},
	"package": {"layer/packages", nil, func(k *sandbox.Kept, n string) bool { return number(k.Layer.Packages[0].Version) >= number(n) }},
	"account": {"layer/accounts", nil, func(k *sandbox.Kept, n string) bool { return number(k.Layer.Accounts[0].Name) >= number(n) }},
}

// A fleet has 30 generations that are kept in a registry, each with a setting of a kind that is drawn: one of each
// kind is found by its generation and its name, however often the search is interrupted, by at most log2(n)+2
// machines to the generation. What a machine has is read from what it would boot.
func TestThirtyGenerations(t *testing.T) {
	t.Parallel()
	n, planted := thirty(t)
	for kind, of := range settings {
		at := strconv.Itoa(planted[kind])
		n.boot = func(_ context.Context, k *sandbox.Kept) (Answer, error) {
			if of.has(k, at) {
				return Answer{Bad, "the fault is there"}, nil
			}
			return Answer{Outcome: Good}, nil
		}
		first := 0
		say := func(format string, args ...any) {
			if line := fmt.Sprintf(format, args...); strings.HasPrefix(line, "generation ") && !strings.Contains(line, " again: ") {
				first++
			}
		}
		var r *Result
		err := ErrMost
		for q := (Question{Good: "1", Cache: t.TempDir(), Most: 2}); errors.Is(err, ErrMost); {
			n.kept = nil
			r, err = n.Find(t.Context(), q, say)
		}
		if err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(of.part, "N", at)
		if r.Bad != "0-"+at || r.Good != "0-"+strconv.Itoa(planted[kind]-1) || r.Reason != kind || r.Author != "eve" || len(r.Parts) != 1 || r.Parts[0].Name != want {
			t.Errorf("%s in %s: %+v, want %s", kind, at, r, want)
		}
		if first > Tries(generations) {
			t.Errorf("%s: %d machines to the generation, more than %d", kind, first, Tries(generations))
		}
	}
}

// thirty publishes them, and says in which one of each kind is.
func thirty(t *testing.T) (n *Node, planted map[string]int) {
	t.Helper()
	f := newShelf(t)
	o := fixture.Overlay(nil)
	var layer release.Layer
	give := func(number int, what string) {
		t.Helper()
		n := strconv.Itoa(number)
		if more := settings[what].give; more != nil {
			more(o, n)
		} else {
			layer = pushed(t, f.registry, n, map[string]string{"packages": n, "accounts": n})
		}
		f.publish(t, o, layer, publish.By{Author: "eve", Reason: what})
	}
	give(1, "package")
	kinds, planted := slices.Collect(maps.Keys(settings)), map[string]int{}
	for i := 2; i <= generations; i++ {
		what := kinds[rand.N(len(kinds))]
		if i-2 < len(kinds) {
			what = kinds[i-2] // each at least once
		}
		give(i, what)
		if planted[what] == 0 || rand.N(2) == 0 {
			planted[what] = i
		}
	}
	return f.node(t, ""), planted
}

// shelf is a registry with what a node had.
type shelf struct {
	dir      string
	registry *registry.Registry
	releaser *ecdsa.PrivateKey
	policy   published.Policy
	p        *publish.Publisher
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	dir := t.TempDir()
	r, err := registry.Open("oci:"+dir, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	operator, releaser := fixture.NewKey(t), fixture.NewKey(t)
	f := &shelf{dir: dir, registry: r, releaser: releaser, policy: published.Policy{Fleet: "f", Threshold: 1, Lifetime: 30 * 24 * time.Hour, Operator: []sign.Verifier{sign.VerifierOf(operator)}, Release: []sign.Verifier{sign.VerifierOf(releaser)}}}
	f.p = &publish.Publisher{Reader: published.Reader{Registry: r, Signers: []crypto.Signer{operator}, Trust: &f.policy, Now: fixture.Now(), Say: t.Logf, NewFleet: true}}
	return f
}

// publish gives the node an overlay on a layer, and others theirs.
func (f *shelf) publish(t *testing.T, o *spec.Overlay, layer release.Layer, by publish.By, others ...*spec.Overlay) {
	t.Helper()
	if o.Layer != layer.Digest {
		manifest, err := f.registry.Source().Manifest(t.Context(), "layer", layer.Digest, "")
		if err == nil {
			err = release.Sign(t.Context(), f.registry, manifest.Data, f.releaser, f.p.Now)
		}
		if err != nil {
			t.Fatal(err)
		}
		o.Layer = layer.Digest
	}
	var nodes []publish.Node
	for _, one := range append(others, o) {
		one.Layer = o.Layer
		one.SetNeeds()
		doc, err := spec.Encode(one)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, publish.Node{Name: one.Node, Match: one.Match, Layer: o.Layer, Knows: layer.Features, Doc: func() ([]byte, error) { return doc, nil }})
	}
	if _, err := f.p.Publish(t.Context(), f.policy, nodes, publish.Options{LayerNamed: true, By: by}); err != nil {
		t.Fatal(err)
	}
	f.p.NewFleet = false
}

// node is the node of a site with more below it.
func (f *shelf) node(t *testing.T, more string) *Node {
	t.Helper()
	fleet, err := f.p.Read(t.Context(), f.policy)
	if err != nil {
		t.Fatal(err)
	}
	s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: f}\nnodes: [{name: n}]\n" + more)}}, "site.yaml")
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return &Node{Name: "n", Site: s, Fleet: fleet, From: f.registry, Checks: []string{"true"}, Then: func(string) Past { return Past{} }}
}
