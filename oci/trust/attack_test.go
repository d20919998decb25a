// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch/download"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/attack"
)

// without returns the rules less one check. Parsers are made lenient instead:
// without a document there is nothing to attack.
func without(name string) *Rules {
	r := All()
	switch name {
	case "document": // the sections are read from the same bytes
		r.overlay = r.overlay.Without("sections").With(name, func(d *decision) error {
			return json.Unmarshal(firstValue(d.candidate.Document), &d.overlay)
		})
	case "fleet: document":
		r.fleet = r.fleet.With(name, func(d *fleetDecision) error { return json.Unmarshal(d.candidate.Document, &d.doc) })
	case "description":
		r.layer = r.layer.With(name, func(l *description) error { return json.Unmarshal(l.config, &l.Layer) })
	default:
		r = r.Without(name)
	}
	return r
}

// node plays a node that meets a world, from the first request to the last byte
// of the layer. It keeps its state in a directory.
type node struct {
	t     *testing.T
	rules *Rules
	w     *attack.World
	state string
	store *layers.Store
}

func newNode(t *testing.T, row attack.Row, rules *Rules) *node {
	t.Helper()
	dir := t.TempDir()
	store, err := layers.OpenStore(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t, rules, row.Forge(t), filepath.Join(dir, "state.json"), store}
	if err := os.WriteFile(n.state, []byte("as before"), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) bootstrap() spec.Bootstrap {
	m := n.w.Node
	return spec.Bootstrap{Fleet: m.Fleet, Keys: attack.Publics(n.t, m.Keys), Threshold: m.Threshold, EpochKeys: attack.Publics(n.t, m.EpochKeys)}
}

func (n *node) decision(c Candidate, fresh *FleetState) *decision {
	m := n.w.Node
	known := Known{Floor: spec.Floor{Epoch: m.Floor[0], Generation: m.Floor[1]}, Fleet: fresh, Overlay: map[string]string{"same": n.w.OverlayDigest, "other": oci.Digest([]byte("other"))}[m.AtFloor]}
	if known.On = m.On; m.On == "layer" {
		known.On = n.w.LayerDigest
	}
	for _, what := range m.Reject {
		known.Reject = append(known.Reject, map[string]string{"overlay": n.w.OverlayDigest, "layer": n.w.LayerDigest, "on": m.On}[what])
	}
	return &decision{
		candidate: c, bootstrap: n.bootstrap(), id: Identity{Node: m.Name, MACs: m.MACs, UUIDs: m.UUIDs},
		clock: n.clock(), known: known,
	}
}

func (n *node) fleetDecision(c Candidate) *fleetDecision {
	seen := n.w.Node.FleetSeen
	return &fleetDecision{candidate: c, bootstrap: n.bootstrap(), floor: spec.Floor{Epoch: seen[0], Generation: seen[1]}, permitted: max(seen[0], n.w.Node.Floor[0]), clock: n.clock()}
}

func (n *node) clock() Clock {
	return Clock{RTC: n.w.Node.RTC, Build: n.w.Node.Build, Newest: n.w.Node.Newest}
}

// boot goes all the way and returns what was accepted.
func (n *node) boot() (*Accepted, error) {
	switch n.w.Row.Serve {
	case "parse":
		c, err := Load(n.w.Manifest)
		if err != nil {
			return nil, err
		}
		return n.rules.decide(n.decision(c, nil))
	case "direct":
		fresh, err := n.rules.decideFleet(n.fleetDecision(Candidate{Document: n.w.Fleet, Bundles: n.w.FleetBundles}))
		if err != nil {
			return nil, err
		}
		return n.rules.decide(n.decision(Candidate{Document: n.w.Overlay, Bundles: n.w.Bundles}, fresh))
	case "parse index":
		_, err := oci.ParseIndex(n.w.LayerManifest)
		return nil, err
	}
	ref, err := oci.ParseRef(n.w.Serve(n.t) + "/metal-a")
	if err != nil {
		n.t.Fatal(err)
	}
	src, err := pull.Open(ref, pull.Options{PlainHTTP: true})
	if err != nil {
		n.t.Fatal(err)
	}
	return n.follow(src)
}

func (n *node) follow(src oci.Source) (*Accepted, error) {
	ctx := n.t.Context()
	c, err := Current(ctx, src, "")
	if err != nil {
		return nil, err
	}
	fresh, err := n.rules.decideFleet(n.fleetDecision(c))
	if err != nil {
		return nil, err
	}
	if c, err = Overlay(ctx, src, []string{"superhost"}, ""); err != nil {
		return nil, err
	}
	if c, err = Load(c.Save()); err != nil {
		return nil, err
	}
	a, err := n.rules.decide(n.decision(c, fresh))
	if err != nil {
		return nil, err
	}
	layer, err := describe(ctx, n.rules.layer, src, a.Overlay.Layer)
	if err == nil {
		err = n.rules.pairing.Run(pairing{layer.Layer, n.w.Node.Fleet, n.w.Node.Arch})
	}
	if err != nil {
		return nil, err
	}
	for _, d := range layer.Manifest.Layers {
		if err := (download.Download{Source: src, Repo: oci.RepoLayer, Store: n.store, Pause: time.Millisecond}).Blob(ctx, d, nil); err != nil {
			return nil, err
		}
	}
	// Now, and not before, the node would remember and act.
	text, err := json.Marshal(a.Floor)
	if err != nil {
		return nil, err
	}
	return a, os.WriteFile(n.state, text, 0o600)
}

// untouched says whether the node is as it was: its state, and no image in the
// store that could be mounted.
func (n *node) untouched() bool {
	state, err := os.ReadFile(n.state)
	return err == nil && string(state) == "as before" && !n.store.Has(n.w.ImageDigest, int64(n.w.ImageSize))
}

func TestAttacks(t *testing.T) {
	attacks := 0
	for _, row := range attack.Load(t) {
		if row.Refuses() {
			attacks++
		}
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, row, All())
			a, err := n.boot()
			if !row.Refuses() {
				if err != nil {
					t.Fatalf("a control was refused (%s): %v", refusal.Of(err), err)
				}
				if a.Expired != row.Node.Expired {
					t.Errorf("expired = %v, want %v", a.Expired, row.Node.Expired)
				}
				return
			}
			if got := refusal.Of(err); got != refusal.Code(row.Code) {
				t.Errorf("code %q, want %q: %v", got, row.Code, err)
			}
			if !slices.Contains(refusal.Codes(), refusal.Code(row.Code)) {
				t.Errorf("code %q is not documented", row.Code)
			}
			if !n.untouched() {
				t.Error("the node has changed")
			}
		})
	}
	if attacks < 60 {
		t.Errorf("%d attacks, at least 60 belong here", attacks)
	}
}

// TestNoCheckIsVacuous takes each check of this package out, and wants every row
// that names it to fail, and every check to have a row.
func TestNoCheckIsVacuous(t *testing.T) {
	rows := map[string][]attack.Row{}
	for _, r := range attack.Load(t) {
		if r.Of() == "trust" {
			_, name, _ := strings.Cut(r.Check, "/")
			rows[name] = append(rows[name], r)
		}
	}
	all := All()
	all.rtc, all.date = nil, nil // clock.yaml attacks them
	for _, name := range all.Names() {
		named := rows[name]
		delete(rows, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(named) == 0 {
				t.Fatal("no attack names this check")
			}
			for _, r := range named {
				n := newNode(t, r, without(name))
				if _, err := n.boot(); refusal.Of(err) == refusal.Code(r.Code) {
					t.Errorf("%s: refused as %s all the same: %v", r.Name, r.Code, err)
				}
			}
		})
	}
	for name := range rows {
		t.Errorf("attacks name the check %q, which this package does not have", name)
	}
}

// firstValue returns the value read by a parser that does not look at what follows.
func firstValue(data []byte) []byte {
	var raw json.RawMessage
	if json.NewDecoder(strings.NewReader(string(data))).Decode(&raw) != nil {
		return data
	}
	return raw
}

// TestChecksAreDocumented: docs/security.md lists the checks of an overlay in order.
func TestChecksAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	if list := strings.Join(overlayChecks.Names(), " · "); !strings.Contains(string(text), "\n"+list+"\n") {
		t.Errorf("docs/security.md has no line %q", list)
	}
}

// What an overlay of a later release has that this one leaves out can be said.
func TestLeftOut(t *testing.T) {
	doc, err := spec.Encode(spec.Overlay{Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}}}})
	if err != nil {
		t.Fatal(err)
	}
	later := slices.Concat(doc[:len(doc)-len(`}]}}`)], []byte(`,"onlyIf":"x"}]}}`))
	d := &decision{candidate: Candidate{Document: later}}
	if err := sectionsParse(d); err != nil || !slices.Equal(d.leftOut, []string{"items.sysctl[].onlyIf"}) {
		t.Errorf("left out %q, %v, of %s", d.leftOut, err, later)
	}
	doc, err = spec.Encode(spec.Fleet{APIVersion: spec.APIVersion, Kind: spec.KindFleet})
	if err != nil {
		t.Fatal(err)
	}
	fleet := &fleetDecision{candidate: Candidate{Document: slices.Concat(doc[:len(doc)-1], []byte(`,"rescueVersion":7}`))}}
	if err := fleetDocumentParses(fleet); err != nil {
		t.Fatal(err)
	}
	if said, err := (Rules{}).decideFleet(fleet); err != nil || !slices.Equal(said.LeftOut, []string{"rescueVersion"}) {
		t.Errorf("%+v, %v", said, err)
	}
	a, err := Rules{}.decide(&decision{leftOut: d.leftOut})
	if err != nil || !slices.Equal(a.LeftOut, d.leftOut) {
		t.Errorf("%+v, %v", a, err)
	}
}
