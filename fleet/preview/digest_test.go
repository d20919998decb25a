// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"crypto"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

const digestSite = `
apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: metal-a}
nodes: [{name: a, labels: {rack: r1}}, {name: b, labels: {rack: r2}}, {name: c, labels: {rack: r2}}]
---
apiVersion: caisson.dev/v1alpha1
kind: NodeSet
metadata: {name: front}
spec: {match: {hosts: [a]}}
---
apiVersion: caisson.dev/v1alpha1
kind: Rollout
metadata: {name: slow}
spec: {soak: 10m, waves: [{count: 1}, {set: front}, {hosts: [b]}]}
`

// TestDigestIsOfOneAct: the digest covers all that is signed because of it, and in the place of
// what. So who agreed to one act has not agreed to another, of the same overlays.
func TestDigestIsOfOneAct(t *testing.T) {
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	good := func() act {
		return act{key, digestSite, dir, "x", published.Policy{Site: true, Fleet: "metal-a", Threshold: 1, Lifetime: 30 * 24 * time.Hour, Operator: []sign.Verifier{sign.VerifierOf(key)}}, spec.Floor{Generation: 1}}
	}
	first := good().digest(t)
	if good().digest(t) != first {
		t.Error("an act has two digests")
	}
	if bare, err := ActDigest(first); err != nil || !strings.HasPrefix(bare, "sha256:") {
		t.Errorf("%s: %v", first, err)
	}
	for name, change := range map[string]func(*act){
		"another content":    func(a *act) { a.content = "y" },
		"another generation": func(a *act) { a.from.Generation = 2 },
		"another epoch":      func(a *act) { a.from.Epoch = 1 },
		"another registry":   func(a *act) { a.registry = t.TempDir() },
		"expires: 3650d":     func(a *act) { a.policy.Lifetime = 3650 * 24 * time.Hour },
		"another threshold":  func(a *act) { a.policy.Threshold = 2 },
		"a removed Rollout": func(a *act) {
			a.site, _, _ = strings.Cut(a.site, "---\napiVersion: caisson.dev/v1alpha1\nkind: Rollout")
		},
		"another soak":         func(a *act) { a.site = strings.Replace(a.site, "10m", "1m", 1) },
		"one wave fewer":       func(a *act) { a.site = strings.Replace(a.site, ", {hosts: [b]}", "", 1) },
		"a node of other sets": func(a *act) { a.site = strings.Replace(a.site, "hosts: [a]", "hosts: [c]", 1) },
		// These divide all nodes as before, and fewer of them otherwise.
		"a wave by percent":      func(a *act) { a.site = strings.Replace(a.site, "count: 1", "percent: 33", 1) },
		"a set of further nodes": func(a *act) { a.site = strings.Replace(a.site, "hosts: [b]", "hosts: [b, a]", 1) },
		"a rollout of one node": func(a *act) {
			a.site = strings.Replace(a.site, "{soak: 10m, waves: [{count: 1}, {set: front}, {hosts: [b]}]}", "{nodes: [front], soak: 10m, waves: [{count: 1}, {set: front}]}", 1)
		},
	} {
		other := good()
		change(&other)
		if got := other.digest(t); got == first {
			t.Errorf("%s has the same digest", name)
		}
	}
}

// act is what somebody agrees to.
type act struct {
	key      crypto.Signer
	site     string
	registry string
	content  string
	policy   published.Policy
	from     spec.Floor
}

func (a act) digest(t *testing.T) string {
	t.Helper()
	s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(a.site)}}, "site.yaml")
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	r, err := registry.Open("oci:"+a.registry, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &publish.Publisher{Reader: published.Reader{Registry: r, Signers: []crypto.Signer{a.key}, Now: time.Unix(1800000000, 0).UTC(), Say: func(string, ...any) {}}}
	fleet, err := p.Read(t.Context(), a.policy)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Preview{Site: s, Publisher: p, Policy: a.policy}.Digest(fleet, a.from, []publish.Node{{Name: "a", Doc: func() ([]byte, error) { return []byte(a.content), nil }}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}
