// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/test/registrytest"
)

// place is a registry and, for a layout, its directory.
type place struct {
	*registry.Registry
	dir string
}

func layout(t *testing.T) place {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	return place{open(t, "oci:"+dir), dir}
}

// put pushes a manifest with one blob.
func put(t *testing.T, r place, text string, tags ...string) oci.Descriptor {
	t.Helper()
	config, blob := oci.Describe(oci.MediaTypeEmpty, oci.Empty), oci.Describe("text/plain", []byte(text))
	if err := errors.Join(r.PutData(t.Context(), "layer", config), r.PutData(t.Context(), "layer", blob)); err != nil {
		t.Fatal(err)
	}
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: "text/plain", Config: config.Bare(), Layers: []oci.Descriptor{blob.Bare()}})
	if _, err := r.PutManifest(t.Context(), "layer", oci.MediaTypeManifest, raw, tags...); err != nil {
		t.Fatal(err)
	}
	return oci.Describe(oci.MediaTypeManifest, raw)
}

func attach(t *testing.T, r place, to oci.Descriptor, text string) oci.Descriptor {
	t.Helper()
	digest, err := r.Attach(t.Context(), "layer", to, registry.Attachment{Type: "text/plain", Blob: oci.Describe("text/plain", []byte(text))})
	if err != nil {
		t.Fatal(err)
	}
	raw, _, err := r.Manifest(t.Context(), "layer", digest)
	if err != nil {
		t.Fatal(err)
	}
	return oci.Describe(oci.MediaTypeManifest, raw)
}

func attached(t *testing.T, r *registry.Registry, digest string) int {
	t.Helper()
	list, err := r.Referrers(t.Context(), "layer", digest)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestCopy brings a manifest, its signature and the signature's own to a layout, a
// registry without the referrers API and one with it.
func TestCopy(t *testing.T) {
	from := layout(t)
	d := put(t, from, "image", "1")
	signature := attach(t, from, d, "signature")
	attach(t, from, signature, "signature of the signature")
	attach(t, from, d, "another")
	for name, to := range map[string]*registry.Registry{
		"layout":         layout(t).Registry,
		"distribution":   open(t, registrytest.Distribution(t)+"/a"),
		"with referrers": open(t, registrytest.WithReferrers(t)+"/a"),
	} {
		t.Run(name, func(t *testing.T) {
			work := &registry.Transfer{From: from.Registry, To: to}
			moved, err := work.Copy(t.Context(), "layer", d.Digest, "1", "current")
			if err != nil || moved.Blobs != 5 {
				t.Fatalf("%+v, %v; want 5 blobs", moved, err)
			}
			for _, tag := range []string{"1", "current"} {
				if raw, _, err := to.Manifest(t.Context(), "layer", tag); err != nil || oci.Digest(raw) != d.Digest {
					t.Errorf("%s: %s, %v", tag, oci.Digest(raw), err)
				}
			}
			if attached(t, to, d.Digest) != 2 || attached(t, to, signature.Digest) != 1 {
				t.Errorf("%d and %d attachments", attached(t, to, d.Digest), attached(t, to, signature.Digest))
			}
			if moved, err := work.Copy(t.Context(), "layer", d.Digest, "1"); err != nil || moved != (registry.Moved{}) {
				t.Errorf("again: %+v, %v", moved, err)
			}
		})
	}
}

// TestNamedLast: a tag appears when all of it is there, and not before.
func TestNamedLast(t *testing.T) {
	from, to := layout(t), layout(t)
	d := put(t, from, "image", "1")
	attach(t, from, d, "signature")
	lost := filepath.Join(from.dir, oci.BlobPath(oci.Digest([]byte("signature"))))
	text, err := os.ReadFile(lost)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	work := &registry.Transfer{From: from.Registry, To: to.Registry}
	if _, err := work.Copy(t.Context(), "layer", d.Digest, "1"); err == nil {
		t.Error("a signature without its content was copied")
	}
	if tags, err := to.Tags(t.Context(), "layer"); err != nil || len(tags) != 0 {
		t.Errorf("tags %v, %v", tags, err)
	}
	if err := os.WriteFile(lost, append([]byte("x"), text[1:]...), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := work.Copy(t.Context(), "layer", d.Digest, "1"); err == nil {
		t.Error("content that is not what its digest says was copied")
	}
	if err := os.WriteFile(lost, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if moved, err := work.Copy(t.Context(), "layer", d.Digest, "1"); err != nil || moved.Blobs != 1 {
		t.Errorf("the rest: %+v, %v; want one blob", moved, err)
	}
}

// TestForeignAttachment: what no OCI tool of today writes is left out, and named.
func TestForeignAttachment(t *testing.T) {
	from, to := place{Registry: open(t, registrytest.WithReferrers(t)+"/a")}, layout(t)
	d := put(t, from, "image", "1")
	raw := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"artifactType":"x","config":{"mediaType":"x","digest":%q,"size":2},"layers":[],"manifests":[],"subject":{"mediaType":%q,"digest":%q,"size":%d}}`,
		oci.MediaTypeManifest, oci.Digest(oci.Empty), oci.MediaTypeManifest, d.Digest, d.Size)
	if _, err := from.PutManifest(t.Context(), "layer", oci.MediaTypeManifest, raw); err != nil {
		t.Fatal(err)
	}
	var said string
	work := &registry.Transfer{From: from.Registry, To: to.Registry, Say: func(format string, args ...any) { said += fmt.Sprintf(format, args...) }}
	_, err := work.Copy(t.Context(), "layer", d.Digest, "1")
	if err != nil || !strings.Contains(said, "left out sha256:") {
		t.Errorf("%q, %v", said, err)
	}
}
