// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// push puts a layer with one image into a registry and returns its manifest's digest.
func push(t *testing.T, r *registry.Registry, image string) string {
	t.Helper()
	blob := func(d oci.Descriptor) oci.Descriptor {
		if err := r.PutData(t.Context(), oci.RepoLayer, d); err != nil {
			t.Fatal(err)
		}
		return d.Bare()
	}
	i := blob(oci.Describe("application/vnd.caisson.image.v1.squashfs", []byte(image)))
	k := blob(oci.Describe("application/vnd.caisson.kernel.v1", []byte("kernel of "+image)))
	recipe := blob(oci.Describe("application/vnd.caisson.recipe.v1+json", []byte("recipe of "+image))) // no boot needs it
	inImage, inKernel := spec.Blob{Digest: i.Digest, Size: i.Size}, spec.Blob{Digest: k.Digest, Size: k.Size}
	config, err := spec.Encode(spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "metal-a", Arch: runtime.GOARCH,
		Kernel: spec.KernelBlob{Release: "6.12", Blob: inKernel}, Initrd: inKernel,
		Images: []spec.Image{{Name: "base", Blob: inImage}}})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := r.PutManifest(t.Context(), oci.RepoLayer, oci.MediaTypeManifest, oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest,
		ArtifactType: oci.TypeLayer, Config: blob(oci.Describe(oci.TypeLayerConfig, config)), Layers: []oci.Descriptor{i, k, recipe}}))
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// What a layer's description has of a later release is said once, when it is fetched.
func TestALayerOfALaterRelease(t *testing.T) {
	r, err := registry.Open("oci:"+t.TempDir(), registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := layers.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	config, err := spec.Encode(spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "metal-a", Arch: runtime.GOARCH, Images: []spec.Image{}})
	if err != nil {
		t.Fatal(err)
	}
	d := oci.Describe(oci.TypeLayerConfig, slices.Concat(config[:len(config)-1], []byte(`,"notes":"x"}`)))
	if err := r.PutData(t.Context(), oci.RepoLayer, d); err != nil {
		t.Fatal(err)
	}
	digest, err := r.PutManifest(t.Context(), oci.RepoLayer, oci.MediaTypeManifest, oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest,
		ArtifactType: oci.TypeLayer, Config: d.Bare(), Layers: []oci.Descriptor{}}))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	s := Stager{Store: store, From: r.Source(), Talk: time.Second, Say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
	for range 2 {
		if _, err := s.Describe(t.Context(), digest); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"layer " + digest + ": " + spec.LeftOut([]string{"notes"})}; !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
}

// What was staged is all that a boot without a registry needs.
func TestLayer(t *testing.T) {
	r, err := registry.Open("oci:"+t.TempDir(), registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := layers.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := Stager{Store: store, From: r.Source(), Talk: time.Second, Say: t.Logf}
	ours := spec.Bootstrap{Fleet: "metal-a"}
	digest := push(t, r, "image")
	if err := s.Layer(t.Context(), digest, spec.Bootstrap{Fleet: "other"}); refusal.Of(err) != refusal.WrongFleet {
		t.Errorf("another fleet's layer: %v", err)
	}
	here := func(want bool) {
		t.Helper()
		if got, err := s.Here(t.Context(), digest); err != nil || got != want {
			t.Errorf("here: %v, %v; want %v", got, err, want)
		}
	}
	here(false)
	var said []string
	s.Say = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	if err := s.Layer(t.Context(), digest, ours); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"fetched base: 0.0 MB in", "fetched kernel: 0.0 MB in"} { // the initrd is the same blob
		if !slices.ContainsFunc(said, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("said %q, no line begins with %q", said, want)
		}
	}
	here(true)
	s.From = nil
	layer, err := s.Describe(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	for _, blobs := range [][]Part{Images(layer), Kernel(layer)} {
		if err := s.Verified(t.Context(), blobs...); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(store.Path(layer.Images[0].Digest), []byte("IMAGE"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Verified(t.Context(), Images(layer)...); err == nil {
		t.Error("an altered image is taken, and there is no registry")
	}
}
