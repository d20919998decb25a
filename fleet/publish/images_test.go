// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/verify"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// imageLayer signs a layer of one image, whose description names a root, "" for none.
func (f *fleet) imageLayer(version string, data []byte, root string) oci.Descriptor {
	f.T.Helper()
	image := oci.Describe(oci.TypeSquashfs, data)
	l := spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "metal-a", Version: version, Variant: "default", Arch: "amd64",
		Images: []spec.Image{{Name: "base", MediaType: image.MediaType, Blob: spec.Blob{Digest: image.Digest, Size: image.Size}}}}
	if root != "" {
		l.Roots = map[string]string{image.Digest: root}
	}
	config, err := spec.Encode(l)
	if err != nil {
		f.T.Fatal(err)
	}
	d := oci.Describe(oci.TypeLayerConfig, config)
	for _, blob := range []oci.Descriptor{image, d} {
		if err := f.Registry.PutData(f.T.Context(), oci.RepoLayer, blob); err != nil {
			f.T.Fatal(err)
		}
	}
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer, Config: d.Bare(), Layers: []oci.Descriptor{image.Bare()}})
	if _, err := f.Registry.PutManifest(f.T.Context(), oci.RepoLayer, oci.MediaTypeManifest, raw); err != nil {
		f.T.Fatal(err)
	}
	f.SignLayer(raw, f.Release)
	return oci.Describe(oci.MediaTypeManifest, raw).Bare()
}

// TestVerifyImages: the publisher finds what a node would: an image that is not what its
// digest says, and a root that is not that of its image.
func TestVerifyImages(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 300*verity.Block/16)
	salt, err := verity.Parse(digest.Hex(digest.Of(data)))
	if err != nil {
		t.Fatal(err)
	}
	root, err := verity.Root(bytes.NewReader(data), int64(len(data)), salt)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		root    string
		rot     bool
		verdict string
	}{
		"right":                  {root.String(), false, "ok"},
		"another root":           {strings.Repeat("0", 64), false, string(refusal.Layer)},
		"without a root":         {"", false, "ok"},
		"rotten":                 {root.String(), true, string(refusal.Digest)},
		"rotten, without a root": {"", true, string(refusal.Digest)},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			l := f.imageLayer("1", data, c.root)
			f.MustPublish(f.Nodes(l.Digest, "10"), Options{})
			if c.rot {
				bad := bytes.Clone(data)
				bad[100_000] ^= 1
				name := filepath.Join(strings.TrimPrefix(f.Registry.Ref().String(), "oci:"), "blobs/sha256", digest.Hex(digest.Of(data)))
				if err := os.WriteFile(name, bad, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if report, err := verify.Fleet(t.Context(), &f.Reader, f.Policy, nil, false); err != nil || !report.OK() {
				t.Fatalf("without images: %+v, %v", report, err)
			}
			report, err := verify.Fleet(t.Context(), &f.Reader, f.Policy, nil, true)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(report.Findings, func(c verify.Check) bool { return strings.HasPrefix(c.What, "image:"+digest.Of(data)) })
			if i < 0 || report.Findings[i].Verdict != c.verdict {
				t.Errorf("%+v, want %s", report.Findings, c.verdict)
			}
		})
	}
}
