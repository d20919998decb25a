// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"crypto"
	"crypto/ecdsa"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/evidence"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/rotate"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// layered has nodes run a layer.
type layered struct {
	release, attestation *ecdsa.PrivateKey
	layer                string // digest
}

// stack gives nodes the layer.
func (l *layered) stack(t testing.TB, nodes []publish.Node) {
	for i, n := range nodes {
		doc, err := n.Doc()
		must(t, err)
		var o spec.Overlay
		must(t, spec.Decode(doc, &o))
		o.Layer, o.Variant = l.layer, "default"
		nodes[i].Layer = l.layer
		nodes[i].Doc = func() ([]byte, error) { return spec.Encode(o) }
	}
}

// newLayered is a fleet whose nodes run the first of two layers, and the second.
func newLayered(t *testing.T, n int, rule string) (f *fleet, second string) {
	t.Helper()
	f = &fleet{t: t, now: time.Now().UTC().Truncate(time.Second), rule: rule, value: "1", nodes: map[string]*node{}, on: &layered{}}
	for _, key := range []**ecdsa.PrivateKey{&f.key, &f.on.release, &f.on.attestation} {
		var err error
		*key, err = sign.Generate()
		must(t, err)
	}
	f.at(layout(t))
	for i := range n {
		f.names = append(f.names, "n0000"+string(rune('0'+i)))
		f.nodes[f.names[i]] = &node{name: f.names[i]}
	}
	f.obeys = spec.Bootstrap{Fleet: "metal", Keys: []string{string(sign.VerifierOf(f.key).PEM())}, Threshold: 1}
	f.on.layer, second = f.pushLayer("1"), f.pushLayer("2")
	f.publish()
	f.tick(time.Minute)
	return f, second
}

// pushLayer pushes a layer that holds nothing.
func (f *fleet) pushLayer(version string) string {
	f.t.Helper()
	config, err := spec.Encode(spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "metal", Version: version, Variant: "default", Arch: "amd64", Images: []spec.Image{}})
	must(f.t, err)
	d := oci.Describe(oci.TypeLayerConfig, config)
	must(f.t, f.p.Registry.PutData(f.t.Context(), oci.RepoLayer, d))
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer, Config: d.Bare(), Layers: []oci.Descriptor{}})
	digest, err := f.p.Registry.PutManifest(f.t.Context(), oci.RepoLayer, oci.MediaTypeManifest, raw)
	must(f.t, err)
	must(f.t, release.Sign(f.t.Context(), f.p.Registry, raw, f.on.release, f.now))
	return digest
}

// state attaches what a rehearsal of a node's change to what the site says now found.
func (f *fleet) state(node, result string, by *ecdsa.PrivateKey) {
	f.t.Helper()
	f.p.Now = f.now
	published, err := f.p.Read(f.t.Context(), f.policy())
	must(f.t, err)
	was, err := published.Overlay(f.t.Context(), node)
	must(f.t, err)
	r := evidence.Rehearsal{Fleet: "metal", Result: result, Reason: "as the test says", IssuedAt: f.now}
	r.From, err = evidence.EndOf(was)
	must(f.t, err)
	for _, n := range f.compile() {
		if n.Name == node {
			doc, err := n.Doc()
			must(f.t, err)
			var is spec.Overlay
			must(f.t, spec.Decode(doc, &is))
			r.To, err = evidence.EndOf(&is)
			must(f.t, err)
		}
	}
	bundle, err := r.Sign(by)
	must(f.t, err)
	must(f.t, release.AttachRehearsal(f.t.Context(), f.p.Registry, r.To.Layer, bundle, f.now))
	f.now = f.now.Add(time.Second)
}

// lacks returns why the waves of a plan would not begin.
func (f *fleet) lacks(plan *spec.RolloutPlan) map[string]string {
	f.t.Helper()
	f.p.Now = f.now
	s, why := StateOf(plan, spec.Rollout{}), map[string]string{}
	must(f.t, s.Unrehearsed(f.t.Context(), &f.p, f.policy(), plan, f.compile()))
	for _, w := range s.Waves {
		if w.Unrehearsed != "" {
			why[w.Name] = w.Unrehearsed
		}
	}
	return why
}

// refuses takes steps until the rollout does not go on for want of a rehearsal.
func (f *fleet) refuses(what string) {
	f.t.Helper()
	before := f.values()
	err := f.run()
	if !errors.Is(err, evidence.ErrNotRehearsed) || !final(err) || !strings.Contains(err.Error(), what) {
		f.t.Fatalf("%v, want %q", err, what)
	}
	f.want(before)
}

// A wave begins when the change of its nodes was rehearsed by one of them, and the newest statement
// says that it passed. Start names the waves that lack one, run refuses them.
func TestRehearsed(t *testing.T) {
	f, second := newLayered(t, 3, "{waves: [{count: 1}, {rest: true}], soak: 1m, rehearsed: settings}")
	f.on.layer = second
	plan, err := f.start("2")
	must(t, err)
	if why := f.lacks(plan); len(why) != 2 || !strings.Contains(why["1"], "the change of n00000 is not rehearsed: no statement of it counts: there is none: 'caisson rehearse FILE --node n00000 --push'") ||
		!strings.Contains(why["2"], "n00001, n00002") {
		t.Errorf("lacks %q", why)
	}
	f.refuses("the change of n00000 is not rehearsed")
	f.state("n00002", evidence.Failed, f.on.attestation)
	f.refuses(`says "failed": as the test says`)
	f.state("n00002", evidence.Passed, f.on.attestation)
	if why := f.lacks(plan); len(why) != 0 {
		t.Errorf("lacks %q", why)
	}
	f.reach(1)
	f.state("n00002", evidence.Differs, f.on.attestation) // a later one takes it back
	if err := f.run(); !errors.Is(err, evidence.ErrNotRehearsed) {
		t.Fatal(err)
	}
	f.want(map[string]int{"2": 1, "1": 2})
	f.state("n00002", evidence.Passed, f.on.attestation)
	if err := f.run(); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
	f.want(map[string]int{"2": 3})
}

// With the rule layer, settings do not count, and a change of settings alone needs nothing.
func TestRehearsedLayer(t *testing.T) {
	f, second := newLayered(t, 2, "{waves: [{rest: true}], soak: 1m, rehearsed: layer}")
	plan, err := f.start("2")
	must(t, err)
	if why := f.lacks(plan); len(why) != 0 {
		t.Errorf("settings alone: lacks %q", why)
	}
	if err := f.run(); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
	f.on.layer, f.value = second, "3"
	f.state("n00001", evidence.Passed, f.on.attestation)
	_, err = f.start("4")
	must(t, err)
	if err := f.run(); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
	f.want(map[string]int{"4": 2})
}

// A statement of a key that was revoked since, or of another role, is none, and nor is one of other
// settings. A node without a layer cannot be rehearsed.
func TestNotRehearsed(t *testing.T) {
	f, second := newLayered(t, 2, "{waves: [{rest: true}], soak: 1m, rehearsed: settings}")
	f.on.layer, f.value = second, "3"
	f.state("n00000", evidence.Passed, f.on.attestation)
	_, err := f.start("2")
	must(t, err)
	f.refuses("or of other settings")
	f.state("n00000", evidence.Passed, f.key)
	f.refuses("or of other settings")
	f.state("n00000", evidence.Passed, f.on.attestation)
	stolen := f.on.attestation
	f.on.attestation, err = sign.Generate()
	must(t, err)
	f.refuses("no statement of it counts")
	f.on.attestation = stolen
	if err := f.run(); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}

	f = newFleet(t, layout(t), 1, "{waves: [{rest: true}], soak: 1m, rehearsed: settings}")
	_, err = f.start("2")
	must(t, err)
	f.refuses("without a layer no machine can boot it")
}

// A key that the newest version of the keys revoked states nothing.
func TestRevokedAttestation(t *testing.T) {
	f, second := newLayered(t, 1, "{waves: [{rest: true}], soak: 1m, rehearsed: layer}")
	f.rooted(t)
	f.publish()
	f.on.layer = second
	f.state("n00000", evidence.Passed, f.on.attestation)
	plan, err := f.start("2")
	must(t, err)
	if why := f.lacks(plan); len(why) != 0 {
		t.Fatalf("lacks %q", why)
	}
	policy, revoked := f.policy(), sign.VerifierOf(f.on.attestation).ID()
	f.on.attestation, err = sign.Generate()
	must(t, err)
	f.p.Now = f.now
	f.keys, _, err = rotate.Keys(t.Context(), &f.p, policy, rotate.Rotation{Next: spec.Keys{Roles: f.roles(), Revoked: []string{revoked}, At: f.now}, Root: []crypto.Signer{f.root}})
	must(t, err)
	f.refuses("no statement of it counts")
}

// A driver refuses a plan that wants a rehearsal of what it does not know.
func TestRehearsalOfALaterRelease(t *testing.T) {
	f := newFleet(t, layout(t), 1, "{waves: [{rest: true}], soak: 1m, rehearsed: layer}")
	o := f.order("2")
	o.Rule.Rehearsed = "firmware"
	_, _, err := Start(t.Context(), &f.p, f.policy(), publish.By{}, o)
	must(t, err)
	if err := f.run(); err == nil || !strings.Contains(err.Error(), `"firmware" must have been rehearsed, which this release does not know`) {
		t.Fatal(err)
	}
}
