// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/builder/sbom"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/layers/delta"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/require"
)

// shelf is a layout with layers that no builder had to run for.
type shelf struct {
	t   *testing.T
	ref string
	reg *registry.Registry

	release, attest *ecdsa.PrivateKey
	p               release.Pusher
	recipe          string // that they are of
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	ref := "oci:" + filepath.Join(t.TempDir(), "out")
	reg, err := registry.Open(ref, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &shelf{t: t, ref: ref, reg: reg, p: release.Pusher{Registry: reg, Now: now()}}
	if s.release, err = sign.Generate(); err != nil {
		t.Fatal(err)
	}
	if s.attest, err = sign.Generate(); err != nil {
		t.Fatal(err)
	}
	s.p.Release, s.p.Attest = s.release, s.attest
	return s
}

// put pushes a layer of one image with the given files.
func (s *shelf) put(version, created string, files map[string]string, packages ...string) string {
	s.t.Helper()
	require.Tool(s.t, "mksquashfs", "unsquashfs")
	dir := s.t.TempDir()
	tree := filepath.Join(dir, "tree")
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "image")
	if err := image.Squashfs(context.Background(), tree, out, image.Options{Level: image.LevelFast, Epoch: 1000}); err != nil {
		s.t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		s.t.Fatal(err)
	}
	var index bytes.Buffer
	if err := delta.WriteIndex(&index, bytes.NewReader(data)); err != nil {
		s.t.Fatal(err)
	}
	chunks := filepath.Join(dir, "chunks")
	if err := os.WriteFile(chunks, index.Bytes(), 0o644); err != nil {
		s.t.Fatal(err)
	}
	blob := func(data []byte) spec.Blob { return spec.Blob{Digest: oci.Digest(data), Size: int64(len(data))} }
	built, chunked := blob(data), blob(index.Bytes())
	l := spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "test", Version: version, Variant: "default", Arch: "amd64", Created: created, Recipe: s.recipe,
		Images: []spec.Image{{Name: "base", MediaType: image.MediaType, Blob: built, Chunks: &chunked}}}
	for _, p := range packages {
		name, v, _ := strings.Cut(p, "=")
		l.Packages = append(l.Packages, spec.InstalledPackage{Name: name, Version: v, Arch: "all"})
	}
	r := &builder.Result{Layer: l, Blobs: []builder.Blob{
		{Blob: built, MediaType: image.MediaType, Path: out, Title: "base"},
		{Blob: chunked, MediaType: delta.MediaType, Path: chunks, Title: "base.chunks"}}}
	d, err := s.p.Push(context.Background(), r, "trixie")
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.p.Index(context.Background(), []oci.Descriptor{d}, nil, "test", version); err != nil {
		s.t.Fatal(err)
	}
	return d.Digest
}

// run runs the command line and returns what it printed.
func (s *shelf) run(args ...string) (string, error) {
	var out, talk bytes.Buffer
	a := newApp(&out, &talk)
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	return out.String(), err
}

// The same layer pushed twice is one layer, with one signature, one provenance
// and one SBOM; all three say what they should.
func TestPushTwice(t *testing.T) {
	s := newShelf(t)
	digest := s.put("1", "2026-01-01T00:00:00Z", map[string]string{"a": "x"}, "bash=5")
	if again := s.put("1", "2026-01-01T00:00:00Z", map[string]string{"a": "x"}, "bash=5"); again != digest {
		t.Fatalf("the second push made %s, the first %s", again, digest)
	}
	l, err := release.Read(context.Background(), s.reg, digest)
	if err != nil {
		t.Fatal(err)
	}
	list, err := l.Referrers(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, d := range list {
		kinds = append(kinds, d.Type+" "+d.Predicate)
	}
	slices.Sort(kinds)
	want := []string{sbom.MediaTypeSPDX + " ", oci.TypeBundle + " " + sign.PredicateCosign, oci.TypeBundle + " " + sign.PredicateProvenance}
	slices.Sort(want)
	if !slices.Equal(kinds, want) {
		t.Errorf("attached %q, want %q", kinds, want)
	}
	if err := l.Verify(context.Background(), []sign.Verifier{sign.VerifierOf(s.release)}); err != nil {
		t.Errorf("the release key's signature: %v", err)
	}
	if l.Verify(context.Background(), []sign.Verifier{sign.VerifierOf(s.attest)}) == nil {
		t.Error("an attestation passes for a release")
	}
}

func TestInspectAndDiff(t *testing.T) {
	s := newShelf(t)
	first := s.put("1", "2026-01-01T00:00:00Z", map[string]string{"etc/a": "x", "etc/gone": "y"}, "bash=5", "old=1")
	second := s.put("2", "2026-01-02T00:00:00Z", map[string]string{"etc/a": "z", "etc/new": "y"}, "bash=6", "new=1")

	out, err := s.run("inspect", s.ref+"@1", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var seen []release.Inspected
	if err := json.Unmarshal([]byte(out), &seen); err != nil || len(seen) != 1 || seen[0].Digest != first || len(seen[0].Referrers) != 3 {
		t.Errorf("inspect printed %s (%v)", out, err)
	}

	keys := t.TempDir()
	for name, pub := range map[string]sign.Verifier{"release": sign.VerifierOf(s.release), "other": sign.VerifierOf(s.attest)} {
		if err := os.WriteFile(filepath.Join(keys, name), pub.PEM(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.run("inspect", s.ref, "--key", filepath.Join(keys, "release")); err != nil {
		t.Errorf("inspect with the key that released: %v", err)
	}
	out, err = s.run("inspect", s.ref, "--key", filepath.Join(keys, "other"), "-o", "json")
	if cli.Code(err) != cli.ExitRefused || !json.Valid([]byte(out)) {
		t.Errorf("inspect with another key ended with %v, printed %s", err, out)
	}

	out, err = s.run("inspect", s.ref+"@1", "--sbom", "--key", filepath.Join(keys, "release"))
	if err != nil || !json.Valid([]byte(out)) || !strings.Contains(out, `"SPDX-2.3"`) || !strings.Contains(out, `"old"`) {
		t.Errorf("inspect --sbom ended with %v, printed %s", err, out)
	}
	if out, err = s.run("inspect", s.ref+"@1", "--sbom", "--key", filepath.Join(keys, "other")); cli.Code(err) != cli.ExitRefused || out != "" {
		t.Errorf("inspect --sbom with another key ended with %v, printed %s", err, out)
	}

	out, err = s.run("diff", s.ref+"@1", s.ref, "--files", "-o", "json")
	if !errors.Is(err, cli.ErrDrift) {
		t.Fatalf("diff ended with %v", err)
	}
	var ds []release.Difference
	if err := json.Unmarshal([]byte(out), &ds); err != nil || len(ds) != 1 {
		t.Fatalf("diff printed %s (%v)", out, err)
	}
	d := ds[0]
	if want := "[{bash 5 6} {new  1} {old 1 }]"; fmt.Sprint(d.Packages) != want {
		t.Errorf("packages %v, want %s", d.Packages, want)
	}
	if want := "[{/etc/a content} {/etc/gone removed} {/etc/new added}]"; fmt.Sprint(d.Files) != want {
		t.Errorf("files %v, want %s", d.Files, want)
	}
	if d.From != first || d.To != second || d.Bytes == 0 {
		t.Errorf("diff %+v", d)
	}
	if out, err := s.run("diff", s.ref+"@2", s.ref+"@"+second); err != nil || out != "" {
		t.Errorf("a layer differs from itself: %q, %v", out, err)
	}
	for _, bad := range []string{s.ref + "@none", s.ref + "@sha256:12", s.ref + "@a/b"} {
		if _, err := s.run("inspect", bad); err == nil {
			t.Errorf("inspect %s: taken", bad)
		}
	}
}

// What stays: the newest, the current, and what a node was told to run.
func TestPrune(t *testing.T) {
	s := newShelf(t)
	var digests []string
	for i := range 5 {
		digests = append(digests, s.put(fmt.Sprint(i), fmt.Sprintf("2026-01-0%dT00:00:00Z", i+1), map[string]string{"v": fmt.Sprint(i)}))
	}
	overlay, err := spec.Encode(spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "test", Node: "alpha", Layer: digests[1]}})
	if err != nil {
		t.Fatal(err)
	}
	raw, blobs := oci.OverlayManifest(overlay)
	for _, b := range blobs {
		if err := s.reg.PutData(context.Background(), oci.RepoNode, b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.reg.PutManifest(context.Background(), oci.RepoNode, oci.MediaTypeManifest, raw, "alpha", "mac-52-54-00-00-00-01"); err != nil {
		t.Fatal(err)
	}
	if out, err := s.run("prune", s.ref, "--keep", "2", "--dry-run"); err != nil || strings.Count(out, "remove") != 2 {
		t.Fatalf("dry run: %v\n%s", err, out)
	}
	if _, err := openLayers(context.Background(), &access{}, s.ref+"@0"); err != nil {
		t.Fatalf("the dry run removed something: %v", err)
	}
	if out, err := s.run("prune", s.ref, "--keep", "2"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, digest := range digests {
		_, err := openLayers(context.Background(), &access{}, s.ref+"@"+release.KeepTag(digest))
		if want := i == 1 || i >= 3; (err == nil) != want {
			t.Errorf("layer %d: %v; want kept %v", i, err, want)
		}
	}
	for _, d := range []string{digests[1], digests[4]} {
		if _, err := s.run("diff", s.ref+"@"+digests[3], s.ref+"@"+d, "--files"); !errors.Is(err, cli.ErrDrift) {
			t.Errorf("a layer that was kept cannot be read: %v", err)
		}
	}
	if out, err := s.run("prune", s.ref, "--keep", "2"); err != nil || strings.Contains(out, "remove") {
		t.Errorf("the second run: %v\n%s", err, out)
	}
}

// The builder has media types of its own, since it may not import oci.
// TestPruneKeepsWhatWasReleasedLast: builds of one lock have one date, and their
// tags have no order.
func TestPruneKeepsWhatWasReleasedLast(t *testing.T) {
	s := newShelf(t)
	for _, version := range []string{"f00d111", "c0ffee2", "aaaa333", "bbbb444"} {
		s.p.Now = s.p.Now.Add(time.Minute)
		s.put(version, "2026-01-01T00:00:00Z", map[string]string{"a": version}, "bash=5")
	}
	out, err := s.run("prune", s.ref, "--keep", "2", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var pruned release.Pruned
	if err := json.Unmarshal([]byte(out), &pruned); err != nil {
		t.Fatal(err)
	}
	var stay []string
	for _, l := range pruned.Layers {
		if l.Keep != "" {
			stay = append(stay, l.Version)
		}
	}
	if slices.Sort(stay); !slices.Equal(stay, []string{"aaaa333", "bbbb444"}) {
		t.Errorf("stay: %q", stay)
	}
}

// Neither a loader nor an account ledger comes out of a layer that no release key
// of the site signed, or that nobody says is current.
func TestUnreleasedLayersAreRefused(t *testing.T) {
	s := newShelf(t)
	dir := t.TempDir()
	site, agent := filepath.Join(dir, "site.yaml"), filepath.Join(dir, "agent")
	elf := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 57)...)
	elf[16], elf[18], elf[20] = 2, 62, 1
	for name, text := range map[string]string{
		agent: string(elf),
		site: "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: test}\nregistry: registry.example.org/x\n" +
			"nodes: [{name: alpha}]\nlayer: {base: {debian: {suite: trixie}}}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	public := func(name string, key *ecdsa.PrivateKey) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "keys", name+".pub"), sign.VerifierOf(key).PEM(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	public("operator", s.attest)
	verbs := map[string][]string{
		"netboot": {"netboot", site, "--from", s.ref, "--out", filepath.Join(dir, "boot"), "--ipxe", ""},
		"build":   {"build", site, "--to", s.ref, "--agent", agent, "--cache", filepath.Join(dir, "cache")},
	}
	refused := func(why string, code refusal.Code, text string) {
		t.Helper()
		for name, args := range verbs {
			_, err := s.run(args...)
			if err == nil || refusal.Of(err) != code || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %s ended with %v", name, why, err)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "boot")); err == nil {
			t.Errorf("%s: something was written", why)
		}
	}
	s.put("1", "2026-01-01T00:00:00Z", map[string]string{"a": "x"})
	refused("no release key", "", "release keys: ")
	public("release", s.attest)
	refused("another release key", refusal.UnknownKey, "layer:current")
	public("release", s.release)
	s.p.Release = nil
	s.put("2", "2026-01-02T00:00:00Z", map[string]string{"a": "y"})
	refused("no release signature", refusal.UnknownKey, "layer:current") // an attestation does not count as one
}
