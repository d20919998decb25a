// SPDX-License-Identifier: Apache-2.0

package release

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

// A sweep removes what nothing leads to and nothing else.
func TestSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	r, err := registry.Open("oci:"+dir, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kept, lost := oci.Describe("text/plain", []byte("kept")), oci.Describe("text/plain", []byte("lost"))
	for _, d := range []oci.Descriptor{kept, lost, oci.Describe(oci.MediaTypeEmpty, oci.Empty)} {
		if err := r.PutData(t.Context(), oci.RepoLayer, d); err != nil {
			t.Fatal(err)
		}
	}
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(), Layers: []oci.Descriptor{kept.Bare()}})
	if _, err := r.PutManifest(t.Context(), oci.RepoLayer, oci.MediaTypeManifest, raw, "1"); err != nil {
		t.Fatal(err)
	}
	if freed, err := sweep(dir, sweepGrace); err != nil || freed != 0 {
		t.Errorf("within the grace period %d bytes were freed, %v", freed, err)
	}
	if freed, err := sweep(dir, 0); err != nil || freed != lost.Size {
		t.Errorf("%d bytes were freed, %v; want %d", freed, err, lost.Size)
	}
	if _, err := os.Stat(filepath.Join(dir, oci.BlobPath(kept.Digest))); err != nil {
		t.Error(err)
	}
}
