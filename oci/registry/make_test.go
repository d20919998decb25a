// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

// TestFirstWriteMakes reads from a layout that is not there, which must not make
// it, and then writes to it.
func TestFirstWriteMakes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "out")
	r := open(t, "oci:"+dir)
	if _, _, err := r.Manifest(t.Context(), "node", "a"); !errors.Is(err, oci.ErrNotFound) {
		t.Errorf("manifest: %v", err)
	}
	digest := oci.Digest([]byte("x"))
	if _, _, err := r.Blob(t.Context(), "node", digest); !errors.Is(err, oci.ErrNotFound) {
		t.Errorf("blob: %v", err)
	}
	if tags, err := r.Tags(t.Context(), "node"); err != nil || len(tags) != 0 {
		t.Errorf("tags %q, %v", tags, err)
	}
	if list, err := r.Referrers(t.Context(), "node", digest); err != nil || len(list) != 0 {
		t.Errorf("referrers %v, %v", list, err)
	}
	if _, err := os.Stat(filepath.Dir(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("reading made a folder: %v", err)
	}
	var wg sync.WaitGroup
	for _, tag := range []string{"a", "b", "c", "d"} { // as many processes
		other := open(t, "oci:"+dir)
		wg.Go(func() {
			raw, blobs := oci.OverlayManifest([]byte(tag), []byte("{}"))
			for _, b := range blobs {
				if err := other.PutData(t.Context(), "node", b); err != nil {
					t.Error(err)
				}
			}
			if _, err := other.PutManifest(t.Context(), "node", oci.MediaTypeManifest, raw, tag); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if tags, err := r.Tags(t.Context(), "node"); err != nil || len(tags) != 4 {
		t.Errorf("tags %q, %v", tags, err)
	}
	if _, _, err := r.Manifest(t.Context(), "node", "a"); err != nil {
		t.Errorf("what was written: %v", err)
	}
}

// TestNoPlaceForALayout is said before anything is written.
func TestNoPlaceForALayout(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "out")} {
		if _, err := registry.Open("oci:"+dir, registry.Options{}); err == nil {
			t.Errorf("%s was taken for a place to write to", dir)
		}
	}
}
