// SPDX-License-Identifier: Apache-2.0

package published_test

import (
	"crypto"
	"crypto/ecdsa"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/prune"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/attack"
)

// attackRow is one row of test/attack/publisher.yaml.
type attackRow struct {
	Name    string            `yaml:"name"`
	Verb    string            `yaml:"verb"`   // publish, pin, rollback, refresh, layers
	Layer   string            `yaml:"layer"`  // a stage's layer, or a tag
	To      string            `yaml:"to"`     // generation that rollback goes to
	After   string            `yaml:"after"`  // since the last stage
	Memory  string            `yaml:"memory"` // "none"
	Site    string            `yaml:"site"`   // "none": the signers are all that is known
	Sign    []string          `yaml:"sign"`
	Place   string            `yaml:"place"` // "server": reached over HTTP
	Skew    bool              `yaml:"skew"`  // the machine's clock is a year ahead
	Serve   map[string]string `yaml:"serve"` // tag → stage that it goes back to
	Remove  []string          `yaml:"remove"`
	Overlay *forged           `yaml:"overlay"` // of node n0
	Forge   []forged          `yaml:"forge"`
	Layers  string            `yaml:"layers"`
	Code    string            `yaml:"code"`
	Check   string            `yaml:"check"`
}

// forged is a document that is changed and signed again.
type forged struct {
	Tag    string        `yaml:"tag"`
	Fleet  string        `yaml:"fleet"`  // of the statement
	Shard  []attack.Edit `yaml:"shard"`  // of the only shard that it names
	Issued string        `yaml:"issued"` // "same": the time of the one it replaces; "late": an hour before the verb
	Edits  []attack.Edit `yaml:"edits"`
	Sign   []string      `yaml:"sign"`
}

// history is the world before an attack: three stages in one layout.
type history struct {
	dir     string
	memory  string
	keys    map[string]*ecdsa.PrivateKey
	policy  published.Policy
	stages  map[string]map[string]string // stage → repository:tag → digest
	layers  map[string]string            // stage → digest of its layer
	lastRun time.Time
	end     time.Time // when the row's verb runs
}

func (h *history) signers(names ...string) (out []crypto.Signer) {
	for _, n := range names {
		out = append(out, h.keys[n])
	}
	return out
}

func (h *history) publisher(t testing.TB, ref string, m *published.Memory, now time.Time) *publish.Publisher {
	t.Helper()
	r, err := registry.Open(ref, registry.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	return &publish.Publisher{Reader: published.Reader{Registry: r, Signers: h.signers("operator", "second"), Memory: m, Now: now, Say: t.Logf, Trust: &h.policy}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// makeHistory publishes the stages.
func makeHistory(t testing.TB) *history {
	dir := t.TempDir()
	h := &history{dir: filepath.Join(dir, "out"), memory: filepath.Join(dir, "memory"), keys: map[string]*ecdsa.PrivateKey{},
		stages: map[string]map[string]string{}, layers: map[string]string{}}
	for _, n := range []string{"operator", "second", "release", "epoch", "stranger"} {
		key, err := sign.Generate()
		must(t, err)
		h.keys[n] = key
	}
	pub := func(names ...string) (out []sign.Verifier) {
		for _, n := range names {
			out = append(out, sign.VerifierOf(h.keys[n]))
		}
		return out
	}
	h.policy = published.Policy{Site: true, Fleet: "metal-a", Operator: pub("operator", "second"), Release: pub("release"), Epoch: pub("epoch"), Threshold: 2, Lifetime: 30 * 24 * time.Hour}
	m, err := published.OpenMemory(h.memory)
	must(t, err)
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	step := func(stage string, f func(p *publish.Publisher) error) {
		p := h.publisher(t, "oci:"+h.dir, m, now)
		must(t, f(p))
		h.stages[stage] = h.tags(t)
		h.lastRun = now
		now = now.Add(24 * time.Hour)
	}
	step("first", func(p *publish.Publisher) error {
		h.layers["first"] = h.release(t, p, "1", "2026-10-01T00:00:00Z", "metal-a", "metal-a", true)
		return h.publish(t, p, "current", "10", publish.Options{})
	})
	step("rejecting", func(p *publish.Publisher) error {
		_, err := p.Refresh(t.Context(), publish.Lists{Unseen: true, Reject: []string{oci.Digest([]byte("bad"))}})
		return err
	})
	step("last", func(p *publish.Publisher) error {
		h.layers["last"] = h.release(t, p, "2", "2026-10-20T00:00:00Z", "metal-a", "metal-a", true)
		return h.publish(t, p, "current", "20", publish.Options{Epoch: 1, EpochKey: h.keys["epoch"]})
	})
	return h
}

// release pushes a layer that holds nothing, and makes it current.
func (h *history) release(t testing.TB, p *publish.Publisher, version, created, fleet, stated string, signed bool) string {
	t.Helper()
	config, err := spec.Encode(spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: fleet, Version: version, Variant: "default", Arch: "amd64", Created: created, Images: []spec.Image{}})
	must(t, err)
	d := oci.Describe(oci.TypeLayerConfig, config)
	must(t, p.Registry.PutData(t.Context(), oci.RepoLayer, d))
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer, Config: d.Bare(), Layers: []oci.Descriptor{}})
	_, err = p.Registry.PutManifest(t.Context(), oci.RepoLayer, oci.MediaTypeManifest, raw)
	must(t, err)
	if signed {
		must(t, release.Sign(t.Context(), p.Registry, raw, h.keys["release"], p.Now))
	}
	pusher := release.Pusher{Registry: p.Registry, Now: p.Now}
	if stated != "" {
		pusher.Release = h.keys["release"]
	}
	_, err = pusher.Index(t.Context(), []oci.Descriptor{oci.Describe(oci.MediaTypeManifest, raw).Bare()}, nil, stated, version)
	must(t, err)
	return oci.Digest(raw)
}

// publish is what the verb does: resolve the layer, compile, publish.
func (h *history) publish(t testing.TB, p *publish.Publisher, layer, value string, o publish.Options) error {
	layers, err := p.Layers(t.Context(), h.policy, layer)
	if err != nil {
		return err
	}
	o.LayerNamed = oci.ValidDigest(layer)
	var nodes []publish.Node
	for i := range 2 {
		doc := &spec.Overlay{
			Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: fmt.Sprintf("n%d", i), Layer: layers[0].Digest, Variant: "default",
				Match: spec.Match{MACs: []string{fmt.Sprintf("52:54:00:00:00:%02x", i)}}},
			Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: value}}},
		}
		nodes = append(nodes, publish.Node{Name: doc.Node, Match: doc.Match, Layer: doc.Layer, Doc: func() ([]byte, error) { return spec.Encode(doc) }})
	}
	_, err = p.Publish(t.Context(), h.policy, nodes, o)
	return err
}

// tags lists what every tag of the layout names.
func (h *history) tags(t testing.TB) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(h.dir, "index.json"))
	must(t, err)
	list, err := oci.ParseLayoutIndex(raw)
	must(t, err)
	tags := map[string]string{}
	for _, n := range list {
		if n.Name != "" {
			tags[n.Name] = n.Digest
		}
	}
	return tags
}

// copyOf copies the world for one row.
func (h *history) copyOf(t testing.TB) *history {
	t.Helper()
	dir := t.TempDir()
	c := *h
	c.dir, c.memory = filepath.Join(dir, "out"), filepath.Join(dir, "memory")
	must(t, os.CopyFS(c.dir, os.DirFS(h.dir)))
	text, err := os.ReadFile(h.memory)
	must(t, err)
	must(t, os.WriteFile(c.memory, []byte(strings.ReplaceAll(string(text), "oci:"+h.dir, "oci:"+c.dir)), 0o644))
	return &c
}

// run does a row's attack and then its verb, under the rules.
func (h *history) run(t testing.TB, row attackRow, rules *published.Rules) error {
	t.Helper()
	h = h.copyOf(t)
	after := time.Hour
	if row.After != "" {
		var err error
		after, err = time.ParseDuration(row.After)
		must(t, err)
	}
	h.end = h.lastRun.Add(after)
	evil := h.publisher(t, "oci:"+h.dir, nil, h.lastRun.Add(min(after, time.Hour)/2))
	h.attack(t, evil, row)

	m, err := published.OpenMemory(h.memory)
	must(t, err)
	if row.Memory == "none" {
		m = nil
	}
	ref, now := "oci:"+h.dir, h.lastRun.Add(after)
	if row.Place == "server" {
		handler, err := registry.Handler(h.dir)
		must(t, err)
		s := httptest.NewServer(handler)
		t.Cleanup(s.Close)
		ref = strings.TrimPrefix(s.URL, "http://") + "/metal-a"
	}
	if row.Skew {
		now, row.Memory = time.Now().Add(365*24*time.Hour), "none"
	}
	p := h.publisher(t, ref, m, now.Truncate(time.Second))
	p.AcceptExpired = row.Skew
	p.Obey(rules)
	if row.Sign != nil {
		p.Signers = h.signers(row.Sign...)
	}
	if row.Site == "none" {
		p.Trust = nil
	}
	layer := release.Current
	if row.Layer != "" {
		if layer = h.layers[row.Layer]; layer == "" {
			layer = row.Layer
		}
	}
	switch row.Verb {
	case "publish":
		return h.publish(t, p, layer, "30", publish.Options{})
	case "pin":
		_, err := hold.Pin(t.Context(), p, hold.Order{Nodes: []string{"n0"}}, layer)
		return err
	case "rollback":
		_, err := hold.Rollback(t.Context(), p, hold.Order{Nodes: []string{"n0"}}, row.To)
		return err
	case "refresh":
		_, err := p.Refresh(t.Context(), publish.Lists{})
		return err
	case "prune":
		p.Trust = &h.policy
		_, err := prune.Run(t.Context(), &p.Reader, p.Alone, prune.Keep{}, true)
		return err
	case "layers":
		_, err := p.Layers(t.Context(), h.policy, layer)
		return err
	}
	t.Fatalf("no verb %q", row.Verb)
	return nil
}

func (h *history) attack(t testing.TB, p *publish.Publisher, row attackRow) {
	t.Helper()
	ctx := t.Context()
	for tag, stage := range row.Serve {
		repo, name, _ := strings.Cut(tag, ":")
		digest := h.stages[stage][tag]
		if tag == "layer:2" {
			digest = h.stages[stage]["layer:1"]
		}
		raw, _, err := p.Registry.Manifest(ctx, repo, digest)
		must(t, err)
		_, err = p.Registry.PutManifest(ctx, repo, oci.MediaTypeManifest, raw, name)
		must(t, err)
	}
	switch row.Layers {
	case "":
	case "lost":
		must(t, p.Registry.Delete(ctx, oci.RepoLayer, h.layers["last"]))
		must(t, os.Remove(filepath.Join(h.dir, oci.BlobPath(h.layers["last"]))))
	case "unstated":
		h.release(t, p, "3", "2026-10-30T00:00:00Z", "metal-a", "", true)
	case "stated elsewhere":
		h.release(t, p, "3", "2026-10-30T00:00:00Z", "metal-a", "metal-b", true)
	case "unsigned":
		h.release(t, p, "3", "2026-10-30T00:00:00Z", "metal-a", "metal-a", false)
	case "late":
		q := *p
		q.Now = h.end.Add(time.Hour)
		h.release(t, &q, "3", "2026-10-30T00:00:00Z", "metal-a", "metal-a", true)
	case "foreign":
		h.release(t, p, "3", "2026-10-30T00:00:00Z", "metal-b", "metal-a", true)
	default:
		t.Fatalf("no layers %q", row.Layers)
	}
	words := h.words(t, p)
	if row.Overlay != nil {
		words["{forged}"] = h.forgeOverlay(t, p, *row.Overlay, words)
	}
	for _, f := range row.Forge {
		h.forge(t, p, f, words)
	}
	for _, tag := range row.Remove {
		repo, name, _ := strings.Cut(tag, ":")
		must(t, p.Registry.Delete(ctx, repo, name))
	}
}

// words are what edits may name: digests in the row of node n0.
func (h *history) words(t testing.TB, p *publish.Publisher) map[string]string {
	root := rootOf(t, p, "index")
	if len(root.Shards) == 0 {
		t.Fatal("the index has no shards")
	}
	n := shardOf(t, p, "index").Nodes["n0"]
	return map[string]string{"{manifest}": n.Manifest, "{overlay}": n.Overlay, "{layer}": n.Layer, "{shard}": root.Shards[0].Manifest, "{zero}": "sha256:" + strings.Repeat("0", 64)}
}

func rootOf(t testing.TB, p *publish.Publisher, tag string) spec.FleetIndex {
	t.Helper()
	root, err := published.ReadRoot(t.Context(), p.Registry.Source(), tag)
	must(t, err)
	return root
}

// shardOf reads the only shard of an index.
func shardOf(t testing.TB, p *publish.Publisher, tag string) (shard spec.FleetShard) {
	t.Helper()
	src := p.Registry.Source()
	resp, err := src.Manifest(t.Context(), oci.RepoNode, rootOf(t, p, tag).Shards[0].Manifest, "")
	must(t, err)
	document, err := oci.ReadNamed(t.Context(), src, resp, oci.Artifact{Repo: oci.RepoNode, Type: oci.TypeFleetShard, Limit: 1 << 20})
	must(t, err)
	must(t, spec.Decode(document, &shard))
	return shard
}

func apply(t testing.TB, text string, edits []attack.Edit, words map[string]string) string {
	t.Helper()
	for _, e := range edits {
		old, new := e.Old, e.New
		for k, v := range words {
			old, new = strings.ReplaceAll(old, k, v), strings.ReplaceAll(new, k, v)
		}
		if !strings.Contains(text, old) {
			t.Fatalf("%q is not in %.1500s", old, text)
		}
		text = strings.Replace(text, old, new, 1)
	}
	return text
}

// forge replaces a document of the fleet.
func (h *history) forge(t testing.TB, p *publish.Publisher, f forged, words map[string]string) {
	t.Helper()
	_, tag, _ := strings.Cut(f.Tag, ":")
	kind, predicate := oci.TypeFleetIndex, sign.PredicateIndex
	if tag == "current" {
		kind, predicate = oci.TypeFleet, sign.PredicateFleet
	}
	c, err := published.Document(t.Context(), p.Registry.Source(), tag, kind, 1<<20)
	must(t, err)
	text := string(c.Document)
	if len(f.Shard) > 0 {
		shard, err := spec.Encode(shardOf(t, p, tag))
		must(t, err)
		forged := oci.Describe(oci.TypeFleetShard, []byte(apply(t, string(shard), f.Shard, words)))
		must(t, p.Registry.PutData(t.Context(), oci.RepoNode, forged))
		raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeFleetShard,
			Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(), Layers: []oci.Descriptor{forged.Bare()}})
		digest, err := p.Registry.PutManifest(t.Context(), oci.RepoNode, oci.MediaTypeManifest, raw, release.KeepTag(oci.Digest(raw)))
		must(t, err)
		text = apply(t, text, []attack.Edit{{Old: rootOf(t, p, tag).Shards[0].Manifest, New: digest}}, nil)
	}
	text = apply(t, text, f.Edits, words)
	if len(f.Edits)+len(f.Shard) > 0 {
		c.Bundles = nil // they are about other content
	}
	q := *p
	if f.Sign != nil {
		q.Signers = h.signers(f.Sign...)
	}
	switch f.Issued {
	case "same":
		q.Now = h.lastRun
	case "late":
		q.Now, c.Bundles = h.end.Add(-time.Hour), nil
	}
	fleet := "metal-a"
	if f.Fleet != "" {
		fleet = f.Fleet
	}
	said := sign.FleetPredicate{Fleet: fleet, IssuedAt: q.Now, Expires: q.Now.Add(h.policy.Lifetime)}
	fresh, err := sign.Each(q.Signers, func(by crypto.Signer) ([]byte, error) {
		return sign.SignFleet(by, oci.Digest([]byte(text)), predicate, said)
	})
	must(t, err)
	manifest, blobs := oci.DocumentManifest(kind, []byte(text), append(fresh, c.Bundles...)...)
	for _, b := range blobs {
		must(t, q.Registry.PutData(t.Context(), oci.RepoFleet, b))
	}
	_, err = q.Registry.PutManifest(t.Context(), oci.RepoFleet, oci.MediaTypeManifest, manifest, tag)
	must(t, err)
}

// forgeOverlay pushes another overlay of node n0 and returns its manifest.
func (h *history) forgeOverlay(t testing.TB, p *publish.Publisher, f forged, words map[string]string) string {
	t.Helper()
	resp, err := p.Registry.Source().Manifest(t.Context(), oci.RepoNode, "n0", "")
	must(t, err)
	doc, bundles, err := oci.ReadOverlay(t.Context(), p.Registry.Source(), oci.RepoNode, resp)
	must(t, err)
	v, err := sign.VerifyOverlay(bundles, h.policy.Operator, 2, oci.Digest(doc))
	must(t, err)
	doc = []byte(apply(t, string(doc), f.Edits, words))
	var fresh [][]byte
	for _, s := range h.signers(f.Sign...) {
		b, err := sign.SignOverlay(s, oci.Digest(doc), v.Predicate)
		must(t, err)
		fresh = append(fresh, b)
	}
	raw, blobs := oci.OverlayManifest(doc, fresh...)
	for _, b := range blobs {
		must(t, p.Registry.PutData(t.Context(), oci.RepoNode, b))
	}
	digest, err := p.Registry.PutManifest(t.Context(), oci.RepoNode, oci.MediaTypeManifest, raw)
	must(t, err)
	return digest
}

// TestAttacks runs the corpus against the publisher.
func TestAttacks(t *testing.T) {
	h := makeHistory(t)
	for _, row := range attack.LoadClass[attackRow](t, "publisher") {
		t.Run(row.Name, func(t *testing.T) {
			var by string
			err := h.run(t, row, published.Recorded(&by))
			if got := string(refusal.Of(err)); got != row.Code || by != row.Check || row.Code == "" && err != nil {
				t.Errorf("%s: %v (%s by %q), want %q by %q", row.Verb, err, got, by, row.Code, row.Check)
			}
		})
	}
}

// TestNoCheckIsVacuous takes each check away in turn: an attack that names it must
// then come through. Others of them may meet a second line of defence.
func TestNoCheckIsVacuous(t *testing.T) {
	h := makeHistory(t)
	rows := map[string][]attackRow{}
	for _, row := range attack.LoadClass[attackRow](t, "publisher") {
		if (row.Code == "") != (row.Check == "") {
			t.Fatalf("row %q needs a code together with a check", row.Name)
		}
		rows[row.Check] = append(rows[row.Check], row)
	}
	all := published.AllNames()
	for _, name := range all {
		t.Run(name, func(t *testing.T) {
			if len(rows[name]) == 0 {
				t.Fatal("no attack names it")
			}
			switch name {
			case "current accepted", "overlay accepted", "overlay form":
				return // it puts there what the rest reads; trust's own rows take its checks away
			}
			var errs []error
			for _, row := range rows[name] {
				err := h.run(t, row, published.Without(name))
				if err == nil || strings.Contains(err.Error(), "this registry is read-only") { // the test's server
					return
				}
				errs = append(errs, err)
			}
			t.Errorf("without it every attack is refused all the same: %v", errs)
		})
	}
	for name := range rows {
		if name != "" && !slices.Contains(all, name) {
			t.Errorf("rows name %q, which is not a check", name)
		}
	}
}
