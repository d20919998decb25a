// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/index"
	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/verify"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fleettest"
	"github.com/caisson-os/caisson/test/require"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fleet is a layout with keys for every role, and what tests of publishers do with it.
type fleet struct{ *fleettest.Fleet }

func newFleet(t testing.TB) *fleet {
	t.Helper()
	return &fleet{fleettest.New(t)}
}

// A layer for development that takes the place of one that is not is said, once a publish.
func TestFastLayerIsSaid(t *testing.T) {
	f := newFleet(t)
	layer := func(version string, fast bool) string {
		return f.LayerAs(spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "metal-a", Version: version, Variant: "default", Arch: "amd64", Images: []spec.Image{}, Fast: fast}, f.Release).Digest
	}
	var said []string
	f.Say = func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); strings.Contains(text, "--fast") {
			said = append(said, text)
		}
	}
	for _, c := range []struct {
		fast bool
		want int
	}{{true, 0}, {false, 0}, {true, 1}, {true, 0}, {false, 0}} { // the first takes no other's place
		said = nil
		digest := layer(fmt.Sprint(len(said), c, f.Now.UnixNano()), c.fast)
		if _, err := f.Publish(t.Context(), f.Policy, f.Nodes(digest, "1"), Options{LayerNamed: true}); err != nil {
			t.Fatal(err)
		}
		f.Now = f.Now.Add(time.Second)
		if len(said) != c.want {
			t.Errorf("fast %v: %q", c.fast, said)
		}
	}
}

// A layer of the fleet that was read is one that its release keys signed, by digest: a
// tag is anybody's.
func TestFleetLayer(t *testing.T) {
	f := newFleet(t)
	good, unsigned := f.Layer("1", "default", f.Release).Digest, f.Layer("2", "default", nil).Digest
	f.Trust = &f.Policy
	if _, err := f.Publish(t.Context(), f.Policy, f.Nodes(good, "1"), Options{}); err != nil {
		t.Fatal(err)
	}
	read, err := f.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if l, err := read.Layer(t.Context(), good); err != nil || l.Version != "1" {
		t.Errorf("%s %v", l.Version, err)
	}
	if _, err := read.Layer(t.Context(), unsigned); refusal.Of(err) == "" {
		t.Errorf("unsigned: %v", err)
	}
	for _, name := range []string{"current", "1", "", "sha256:0"} {
		if _, err := read.Layer(t.Context(), name); err == nil {
			t.Errorf("%q is a layer", name)
		}
	}
}

// bound returns the overlay of a node that is bound to cards.
func (f *fleet) bound(name string, macs ...string) func() ([]byte, error) {
	o := &spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: name, Match: spec.Match{MACs: macs}}}
	return func() ([]byte, error) { return spec.Encode(o) }
}

func (f *fleet) readCurrent() (*trust.FleetState, error) {
	v, err := f.Open(f.T.Context(), f.Policy, published.Purpose{Publish: true})
	if err != nil {
		return nil, err
	}
	return v.State().Current, nil
}

func TestPublishPinAndBack(t *testing.T) {
	f := newFleet(t)
	one, two := f.Layer("1", "default", f.Release).Digest, f.Layer("2", "default", f.Release).Digest

	f.MustPublish(f.Nodes(one, "10", "10"), Options{})
	f.MustBoot(1, one)
	r := f.MustPublish(f.Nodes(two, "10", "10"), Options{})
	if len(r.Published) != 2 || r.Generation != 2 {
		t.Fatalf("second publish: %+v", r)
	}
	f.MustBoot(2, two)

	r, err := hold.Pin(t.Context(), f.Publisher, n0, one)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Published) != 1 || r.Generation != 3 {
		t.Fatalf("pin: %+v", r)
	}
	f.MustBoot(3, one)

	report, err := verify.Fleet(t.Context(), &f.Reader, f.Policy, nil, false)
	if err != nil || !report.OK() {
		t.Fatalf("verify: %+v, %v", report, err)
	}
	if len(report.Findings) != 5 { // fleet:current, two nodes, two layers
		t.Errorf("verify looked at %d things, want 5: %+v", len(report.Findings), report.Findings)
	}
}

func TestUnchangedNodesKeepTheirGeneration(t *testing.T) {
	f := newFleet(t)
	f.MustPublish(f.Nodes("", "10", "10"), Options{})
	r := f.MustPublish(f.Nodes("", "10", "20"), Options{})
	if len(r.Published) != 1 || r.Published[0].Node != "n1" || r.Unchanged != 1 {
		t.Fatalf("one node changed: %+v", r)
	}
	f.MustBoot(1, "")

	f.Now = f.Now.Add(25 * 24 * time.Hour)
	r = f.MustPublish(f.Nodes("", "10", "20"), Options{})
	if len(r.Resigned) != 2 || len(r.Published) != 0 || r.Generation != 2 {
		t.Fatalf("near the end of the signature: %+v", r)
	}
	f.MustBoot(1, "")

	r = f.MustPublish(f.Nodes("", "10", "20"), Options{All: true})
	if len(r.Published) != 2 || r.Generation != 3 {
		t.Fatalf("with all: %+v", r)
	}
	f.MustBoot(3, "")
	fresh, err := f.readCurrent()
	if err != nil || fresh.Minimum.Generation != 3 {
		t.Fatalf("fleet:current = %+v, %v; want a minimum of 3", fresh, err)
	}
}

func TestLayersMustBeReleased(t *testing.T) {
	f := newFleet(t)
	bare := f.Layer("unsigned", "default", nil)
	attested := f.Layer("attested", "default", nil)
	raw, _, err := f.Registry.Manifest(t.Context(), "layer", attested.Digest)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := sign.Attest(f.Release, attested.Digest, sign.PredicateProvenance, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	f.Attach(raw, bundle)
	wrong := f.Layer("wrong key", "default", f.Attestation)
	for want, digest := range map[refusal.Code]string{refusal.Unsigned: bare.Digest, refusal.UnknownKey: wrong.Digest, refusal.PredicateType: attested.Digest} {
		if _, err := f.Layers(t.Context(), f.Policy, digest); refusal.Of(err) != want {
			t.Errorf("layer = %v, want %s", err, want)
		}
	}
	good := f.Layer("good", "default", f.Attestation) // a bad signature beside a good one
	raw, _, _ = f.Registry.Manifest(t.Context(), "layer", good.Digest)
	f.SignLayer(raw, f.Release)
	if _, err := f.Layers(t.Context(), f.Policy, good.Digest); err != nil {
		t.Errorf("a bad signature beside a good one: %v", err)
	}
}

// TestVariantsComeFromTheSignedDescription lets the index's annotations lie.
func TestVariantsComeFromTheSignedDescription(t *testing.T) {
	f := newFleet(t)
	a, b := f.Layer("1", "default", f.Release), f.Layer("1", "dpdk", f.Release)
	a.Annotations, b.Annotations = map[string]string{oci.AnnotationVariant: "dpdk"}, map[string]string{oci.AnnotationVariant: "default"}
	index, err := (&release.Pusher{Registry: f.Registry, Now: f.Now}).Index(t.Context(), []oci.Descriptor{a, b}, nil, "metal-a", "1")
	if err != nil {
		t.Fatal(err)
	}
	layers, err := f.Layers(t.Context(), f.Policy, index)
	if err != nil {
		t.Fatal(err)
	}
	for variant, want := range map[string]string{"default": a.Digest, "dpdk": b.Digest} {
		if got, err := release.ForVariant(layers, "", variant); err != nil || got.Digest != want {
			t.Errorf("For(%s) = %s, %v; want %s", variant, got.Digest, err, want)
		}
	}
	if _, err := release.ForVariant(layers, "", "other"); err == nil {
		t.Error("a variant that is not there was found")
	}
}

func TestEpoch(t *testing.T) {
	f := newFleet(t)
	f.MustPublish(f.Nodes("", "10"), Options{})
	f.MustBoot(1, "")
	if _, err := f.Publish(t.Context(), f.Policy, f.Nodes("", "10"), Options{Epoch: 1}); err == nil {
		t.Fatal("the epoch rose without its key")
	}
	f.MustPublish(f.Nodes("", "10"), Options{Epoch: 1, EpochKey: f.Top})
	f.MustBoot(2, "")
	if f.Floor.Epoch != 1 {
		t.Fatalf("floor = %+v, want epoch 1", f.Floor)
	}
	// Later publishes carry the permission on, also to nodes that start afresh.
	f.MustPublish(f.Nodes("", "11"), Options{})
	f.Floor = spec.Floor{}
	f.MustBoot(3, "")

	// Somebody else's word does not count, neither here nor on the node.
	if _, err := f.Publish(t.Context(), f.Policy, f.Nodes("", "11"), Options{Epoch: 2, EpochKey: f.Operator}); err == nil {
		t.Error("the operator's key raised the epoch")
	}
	f.Policy.Epoch = append(f.Policy.Epoch, sign.VerifierOf(f.Operator))
	f.MustPublish(f.Nodes("", "11"), Options{Epoch: 2, EpochKey: f.Operator})
	if _, err := f.Boot(); refusal.Of(err) != refusal.Epoch {
		t.Errorf("an epoch by the operator's key: %v", err)
	}
}

// cut publishes as if it was cut: generation 2 is reserved and n0's overlay out, the
// index not.
func (f *fleet) cut() { f.cutDoing(nil, 2) }

// cutDoing is cut of a publish that says what it does, and gives n0 a generation.
func (f *fleet) cutDoing(what *spec.FleetChange, given uint64) {
	f.T.Helper()
	v, err := f.Open(f.T.Context(), f.Policy, published.Purpose{})
	must(f.T, err)
	f.Now = f.Now.Add(time.Second)
	reserved := v.State().Index.Root
	reserved.Generation, reserved.Doing = 2, what
	at := f.Run(v)
	must(f.T, PutReserved(at, f.T.Context(), f.Policy.Lifetime, reserved))
	node := f.Nodes("", "cut")[0]
	at.Plan = &Plan{Index: index.New(reserved)}
	cut := []Work{{Node: Node{Name: "n0", Match: node.Match, Layer: node.Layer}, Generation: given}}
	must(f.T, SetDocument(&cut[0], node.Doc))
	must(f.T, SignNodes(f.Publisher, f.T.Context(), f.Policy, &reserved, cut))
	_, err = PushNode(at, f.T.Context(), &cut[0])
	must(f.T, err)
	f.MustBoot(given, "")
}

// TestCutPublish stops after the reservation and after a node, and goes on. The site is
// what it was before the cut publish: the node must move all the same.
func TestCutPublish(t *testing.T) {
	f := newFleet(t)
	f.MustPublish(f.Nodes("", "10"), Options{})
	f.cut()
	r := f.MustPublish(f.Nodes("", "10"), Options{})
	if r.Generation != 3 || len(r.Published) != 1 {
		t.Fatalf("after a cut publish: %+v, want generation 3 for n0", r)
	}
	f.MustBoot(3, "")
	if a, err := f.Boot(); err != nil || a.Overlay.Items.Sysctl[0].Value != "10" {
		t.Errorf("the node has what a cut publish gave it: %+v, %v", a, err)
	}
}

// TestCutPublishOfOthers: a publish of some nodes puts right, too, what a cut one left
// with the others, whether the site has them still or not. None of them gets anything else.
func TestCutPublishOfOthers(t *testing.T) {
	for what, of := range map[string]func(f *fleet) []Node{
		"in the site":   func(f *fleet) []Node { return f.Nodes("", "11", "11") },
		"left the site": func(f *fleet) []Node { return f.Nodes("", "11", "11")[1:] },
	} {
		t.Run(what, func(t *testing.T) {
			f := newFleet(t)
			f.MustPublish(f.Nodes("", "10", "10"), Options{})
			f.cut()
			r := f.MustPublish(of(f), Options{Only: func(name string) bool { return name == "n1" }})
			if r.Generation != 3 || len(r.Published) != 2 {
				t.Fatalf("after a cut publish: %+v, want generation 3 for n0 and n1", r)
			}
			f.MustBoot(3, "")
			if a, err := f.Boot(); err != nil || a.Overlay.Items.Sysctl[0].Value != "10" {
				t.Errorf("the node has what a cut publish gave it: %+v, %v", a, err)
			}
		})
	}
}

func TestThreshold(t *testing.T) {
	f := newFleet(t)
	second, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	f.Policy.Operator = append(f.Policy.Operator, sign.VerifierOf(second))
	f.Policy.Threshold = 2
	for _, signers := range [][]crypto.Signer{{f.Operator}, {f.Operator, f.Operator}} {
		f.Signers = signers
		if _, err := f.Publish(t.Context(), f.Policy, f.Nodes("", "10"), Options{}); err == nil || !strings.Contains(err.Error(), "one key signs, the site demands 2") {
			t.Errorf("%d signers, one key: %v", len(signers), err)
		}
	}
	f.Signers = []crypto.Signer{f.Operator, second}
	f.MustPublish(f.Nodes("", "10"), Options{})
	f.MustBoot(1, "")
}

// TestVerifyTellsSilenceFromAbsence: a layer that is gone is a finding, a registry
// that fails while it is asked for one is an error.
func TestVerifyTellsSilenceFromAbsence(t *testing.T) {
	require.Slow(t)
	f := newFleet(t)
	digest := f.Layer("1", "default", f.Release).Digest
	f.MustPublish(f.Nodes(digest, "10"), Options{})
	handler, err := registry.Handler(f.Registry.Ref().Layout)
	if err != nil {
		t.Fatal(err)
	}
	status := http.StatusNotFound
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.Contains(q.URL.Path, "/layer/") {
			http.Error(w, "", status)
			return
		}
		handler.ServeHTTP(w, q)
	}))
	defer server.Close()
	if f.Registry, err = registry.Open(strings.TrimPrefix(server.URL, "http://")+"/metal-a", registry.Options{PlainHTTP: true}); err != nil {
		t.Fatal(err)
	}
	report, err := verify.Fleet(t.Context(), &f.Reader, f.Policy, nil, false)
	if err != nil || report.OK() || report.Findings[2].Verdict != "missing" {
		t.Errorf("without its layer: %+v, %v", report, err)
	}
	status = http.StatusBadGateway
	if report, err := verify.Fleet(t.Context(), &f.Reader, f.Policy, nil, false); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("from a registry that fails: %+v, %v", report, err)
	}
}

func TestNothingPublished(t *testing.T) {
	f := newFleet(t)
	ref := f.Registry.Ref().String()
	if _, err := f.Refresh(t.Context(), Lists{}); err == nil || !strings.HasPrefix(err.Error(), ref+" holds no published fleet") {
		t.Errorf("refresh: %v", err)
	}
	f.MustPublish(f.Nodes("", "10"), Options{})
	for _, c := range []struct{ layer, want string }{
		{"none", "layer:none: not found"},
		{"sha256:" + strings.Repeat("0", 64), "layer:sha256:" + strings.Repeat("0", 64) + ": not found"},
		{"sha256:xyz", `"sha256:xyz" is neither a tag nor a digest`},
	} {
		_, err := hold.Pin(t.Context(), f.Publisher, hold.Order{All: true}, c.layer)
		var hinted interface{ Hint() string }
		if err == nil || err.Error() != c.want || !errors.As(err, &hinted) || hinted.Hint() == "" {
			t.Errorf("pin %s: %v", c.layer, err)
		}
	}
}

func TestRejectList(t *testing.T) {
	f := newFleet(t)
	r := f.MustPublish(f.Nodes("", "10"), Options{})
	bad := r.Published[0].Overlay
	if _, err := f.Refresh(t.Context(), Lists{Reject: []string{bad}}); err != nil {
		t.Fatal(err)
	}
	report, err := verify.Fleet(t.Context(), &f.Reader, f.Policy, nil, false)
	if err != nil || report.OK() || report.Findings[1].Verdict != string(refusal.Rejected) {
		t.Errorf("verify with a rejected overlay: %+v, %v", report, err)
	}
	if _, err := f.Publish(t.Context(), f.Policy, f.Nodes("", "10"), Options{All: true}); refusal.Of(err) != refusal.Rejected {
		t.Errorf("what is rejected was published: %v", err)
	}
	if x, err := f.Index(); err != nil || x.Generation != 1 {
		t.Errorf("a publish that nodes would refuse left its mark: %+v, %v", x, err)
	}
	f.MustPublish(f.Nodes("", "11"), Options{}) // keeps the list
	fresh, err := f.readCurrent()
	if err != nil || len(fresh.Reject) != 1 {
		t.Errorf("after a publish the list is %+v, %v", fresh, err)
	}
	if _, err := f.Refresh(t.Context(), Lists{Allow: []string{bad}}); err != nil {
		t.Fatal(err)
	}
	if fresh, err := f.readCurrent(); err != nil || len(fresh.Reject) != 0 {
		t.Errorf("after allow the list is %+v, %v", fresh, err)
	}
}

// TestRefresh lets time pass: fleet:current is signed again each time, overlays when
// they grow old, and nothing ever changes for the nodes.
func TestRefresh(t *testing.T) {
	f := newFleet(t)
	f.MustPublish(f.Nodes("", "10", "10"), Options{})
	for _, c := range []struct{ day, resigned int }{{1, 0}, {19, 0}, {25, 2}, {26, 0}, {50, 2}} {
		f.Now = fleettest.Start.Add(time.Duration(c.day) * 24 * time.Hour)
		r, err := f.Refresh(t.Context(), Lists{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Resigned) != c.resigned || len(r.Published) != 0 || r.Generation != 1 {
			t.Errorf("day %d: %+v, want %d signed again", c.day, r, c.resigned)
		}
		a, err := f.Boot()
		if err != nil || a.Expired || a.Floor.Generation != 1 {
			t.Errorf("day %d: %+v, %v", c.day, a, err)
		}
		fresh, err := f.readCurrent()
		if err != nil || fresh.Expired || !fresh.IssuedAt.Equal(f.Now) {
			t.Errorf("day %d: fleet:current %+v, %v", c.day, fresh, err)
		}
	}
	f.Now = fleettest.Start.Add(100 * 24 * time.Hour) // nobody refreshed for long
	report, err := verify.Fleet(t.Context(), &f.Reader, f.Policy, nil, false)
	if err != nil || report.OK() || report.Findings[0].Verdict != "expired" || report.Findings[1].Verdict != "expired" {
		t.Errorf("after 100 days: %+v, %v", report, err)
	}
}

// TestARefreshHealsACutPublish: a timer goes on after it, and the fleet does not expire.
// Nodes that the cut one moved get again what they had, those with an old signature, too.
func TestARefreshHealsACutPublish(t *testing.T) {
	for day, resigned := range map[int]int{1: 0, 25: 1} {
		f := newFleet(t)
		f.MustPublish(f.Nodes("", "10", "10"), Options{})
		f.cut()
		f.Now = fleettest.Start.Add(time.Duration(day) * 24 * time.Hour)
		f.AcceptExpired = true // nobody refreshed it since
		r, err := f.Refresh(t.Context(), Lists{})
		must(t, err)
		if r.Generation != 3 || len(r.Published) != 1 || r.Published[0].Node != "n0" || len(r.Resigned) != resigned || r.Unchanged != 1-resigned {
			t.Errorf("day %d: %+v", day, r)
		}
		f.MustBoot(3, "")
		if a, err := f.Boot(); err != nil || a.Overlay.Items.Sysctl[0].Value != "10" {
			t.Errorf("day %d: the node has what a cut publish gave it: %+v, %v", day, a, err)
		}
		if bad := verdicts(t, f, f.Publisher); len(bad) > 0 {
			t.Errorf("day %d: %+v", day, bad)
		}
		f.Now = f.Now.Add(time.Hour)
		if r, err = f.Refresh(t.Context(), Lists{}); err != nil || r.Generation != 3 || len(r.Published)+len(r.Resigned) != 0 {
			t.Errorf("day %d: the next one: %+v, %v", day, r, err)
		}
	}
}

// TestPublishRefusesWhatNoAgentHereKnows: an overlay that needs what came later is refused
// before it is signed.
func TestPublishRefusesWhatNoAgentHereKnows(t *testing.T) {
	f := newFleet(t)
	l := f.Layer("1", "default", f.Release)
	n := f.Nodes(l.Digest, "1")[0]
	n.Knows, n.Doc = []string{"later"}, later(n) // the layer's agent does
	_, err := f.Publish(t.Context(), f.Policy, []Node{n}, Options{})
	if err == nil || !strings.Contains(err.Error(), `the overlay needs ["later"]`) {
		t.Fatalf("published what is not known here: %v", err)
	}
	if _, err := f.Boot(); !errors.Is(err, oci.ErrNotFound) {
		t.Errorf("something was published: %v", err)
	}
}

// later is the document of an overlay that needs what a later release brings.
func later(n Node) func() ([]byte, error) {
	return func() ([]byte, error) {
		return spec.Encode(&spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: n.Name, Layer: n.Layer, Match: n.Match,
			Needs: []string{"later"}}})
	}
}

// TestPublishRefusesAPairThatDoesNotFit: an overlay that uses what came later, which this
// publisher knows, and a layer whose agent is older.
func TestPublishRefusesAPairThatDoesNotFit(t *testing.T) {
	f := newFleet(t)
	f.Agent = trust.All().Without("needs") // of a later release
	of := func(version string, features ...string) string {
		return f.LayerAs(spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "metal-a", Version: version, Variant: "default", Arch: "amd64", Images: []spec.Image{}, Features: features}, f.Release).Digest
	}
	older, newer := of("0"), of("1", "later")
	for layer, knows := range map[string][]string{older: nil, newer: {"other"}} {
		n := f.Nodes(layer, "1")[0]
		n.Knows, n.Doc = knows, later(n)
		if _, err := f.Publish(t.Context(), f.Policy, []Node{n}, Options{}); err == nil || !strings.Contains(err.Error(), "layer "+layer+": its agent does not know later") {
			t.Fatalf("an agent that knows %q: %v", knows, err)
		}
		if _, err := f.Boot(); !errors.Is(err, oci.ErrNotFound) {
			t.Errorf("something was published: %v", err)
		}
	}
	has := func(want string) {
		t.Helper()
		if x, err := f.Index(); err != nil || x.Nodes["n0"].Layer != want {
			t.Fatalf("%v, n0 has %+v, want layer %s", err, x.Nodes["n0"], want)
		}
	}
	n := f.Nodes(newer, "1")[0]
	n.Knows, n.Doc = []string{"later", "other"}, later(n)
	f.MustPublish([]Node{n}, Options{})
	has(newer)

	// A pin to a layer keeps the overlay, which the layer's agent does not know.
	if _, err := hold.Pin(t.Context(), f.Publisher, n0, older); err == nil || !strings.Contains(err.Error(), "does not know later") {
		t.Errorf("pin to an older layer: %v", err)
	}
	has(newer)
	again := of("2", "later")
	_, err := hold.Pin(t.Context(), f.Publisher, n0, again)
	must(t, err)
	has(again)
}

// TestAnOverlayThatChangesMeanwhile: overlays are made both when they are signed and when
// they are pushed, and what was signed is pushed or nothing.
func TestAnOverlayThatChangesMeanwhile(t *testing.T) {
	f := newFleet(t)
	f.MustPublish(f.Nodes("", "10"), Options{})
	for call := 2; call <= 3; call++ {
		f.Now = f.Now.Add(time.Second)
		nodes, calls := f.Nodes("", "20"), 0
		first, other := nodes[0].Doc, f.Nodes("", "30")[0].Doc
		nodes[0].Doc = func() ([]byte, error) {
			if calls++; calls >= call {
				return other()
			}
			return first()
		}
		if _, err := f.Publish(t.Context(), f.Policy, nodes, Options{}); err == nil || !strings.Contains(err.Error(), "node n0: its overlay was made twice, and not alike") {
			t.Fatalf("another overlay at call %d: %v", call, err)
		}
		if a, err := f.Boot(); err != nil || a.Overlay.Items.Sysctl[0].Value != "10" {
			t.Errorf("another overlay at call %d: the node has %+v, %v", call, a, err)
		}
	}
}

// TestOverlaysAreMadeAtOnce: what the site says of nodes takes as long as processors make it.
func TestOverlaysAreMadeAtOnce(t *testing.T) {
	f := newFleet(t)
	nodes, left, all := f.Nodes("", "10", "20", "30"), atomic.Int32{}, make(chan struct{})
	left.Store(int32(len(nodes)))
	for i := range nodes {
		doc := nodes[i].Doc
		nodes[i].Doc = func() ([]byte, error) {
			if left.Add(-1) == 0 {
				close(all)
			}
			select {
			case <-all:
				return doc()
			case <-time.After(time.Minute):
				return nil, errors.New("the others are not made meanwhile")
			}
		}
	}
	if r := f.MustPublish(nodes, Options{}); len(r.Published) != len(nodes) {
		t.Errorf("%+v", r)
	}
}

// A node that got another network card leaves no tag behind; one that another node
// took over stays.
func TestChangedMachinesLeaveNoAlias(t *testing.T) {
	f := newFleet(t)
	bound := func(macs ...string) (nodes []Node) {
		for i, mac := range macs {
			o := &spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: fmt.Sprintf("n%d", i), Match: spec.Match{MACs: []string{mac}}}}
			nodes = append(nodes, Node{Name: o.Node, Match: o.Match, Doc: func() ([]byte, error) { return spec.Encode(o) }})
		}
		return nodes
	}
	f.MustPublish(bound("52:54:00:00:00:01", "52:54:00:00:00:02"), Options{})
	f.MustPublish(bound("52:54:00:00:00:03", "52:54:00:00:00:01"), Options{})
	tags, err := f.Registry.Tags(t.Context(), oci.RepoNode)
	tags = slices.DeleteFunc(tags, func(tag string) bool { return strings.HasPrefix(tag, "keep-") })
	if want := []string{"mac-525400000001", "mac-525400000003", "n0", "n1"}; err != nil || !slices.Equal(tags, want) {
		t.Errorf("tags %v, %v; want %v", tags, err, want)
	}
}

// TestPassOverIsSure: what a node goes back to behind a foreign generation is what was found,
// and nothing where that cannot be looked for, or is not there.
func TestPassOverIsSure(t *testing.T) {
	f := newFleet(t)
	for _, value := range []string{"10", "20", "30"} {
		must(t, f.Gives(t.Context(), value, Options{}))
	}
	handler, err := registry.Handler(f.Registry.Ref().Layout)
	must(t, err)
	away := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if away != "" && strings.HasSuffix(q.URL.Path, away) {
			http.Error(w, "", http.StatusBadGateway)
			return
		}
		handler.ServeHTTP(w, q)
	}))
	defer server.Close()
	p := *f.Publisher
	p.Registry, err = registry.Open(strings.TrimPrefix(server.URL, "http://")+"/metal-a", registry.Options{PlainHTTP: true})
	must(t, err)
	was, err := p.Read(t.Context(), f.Policy)
	must(t, err)
	before := func(number uint64) string {
		past, err := was.Past(t.Context(), published.Generation{Number: number})
		must(t, err)
		row, _, err := past.Row(t.Context(), "n0")
		must(t, err)
		return row.Before.Overlay
	}
	last := was.State().Index.Root.Generation // gave 30
	for _, c := range []struct {
		what, away string
		foreign    uint64 // generations from here on
		goesTo     string // "-" is refused
	}{
		{"all is there", "", last, before(last - 1)},
		{"no list of generations", "/fleet/tags/list", last, "-"},
		{"the generation before is not read", "/fleet/manifests/" + published.Generation{Number: last - 1}.Tag(), last, "-"},
		{"no generation was ours", "", 1, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			away = c.away
			was.State().Index.Root.Foreign = []spec.Span{{From: c.foreign, To: last}}
			row := spec.Published{Foreign: true, Before: &spec.Content{Overlay: "what it gets"}}
			r := p.Run(was)
			r.Plan = &Plan{Todo: []Work{{Node: Node{Name: "n0"}, Was: &row, Overlay: "what it gets"}}}
			err := PassOver(r, t.Context())
			goesTo := ""
			switch {
			case err != nil:
				goesTo = "-"
			case row.Before != nil:
				goesTo = row.Before.Overlay
			}
			if goesTo != c.goesTo {
				t.Errorf("it goes back to %q (%v), want %q", goesTo, err, c.goesTo)
			}
		})
	}
}

// A fleet's overlays are many: what is kept of one is a fraction of it, and all that it was.
func TestWhatIsKeptIsSmall(t *testing.T) {
	var first Work
	must(t, first.SetKept([]byte("{}")))
	before, todo := fleettest.Heap(), make([]Work, 64)
	for i := range todo {
		must(t, todo[i].SetKept(bytes.Repeat([]byte{'a' + byte(i%26)}, 1<<20)))
	}
	if grown := fleettest.Heap() - before; grown > 32<<20 {
		t.Errorf("64 MiB are kept in %d MiB", grown>>20)
	}
	for i := range todo {
		if doc, err := Document(&todo[i]); err != nil || len(doc) != 1<<20 || doc[1<<19] != 'a'+byte(i%26) {
			t.Errorf("overlay %d: %d bytes, %v", i, len(doc), err)
		}
	}
}
