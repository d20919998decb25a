// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
)

// A sweep removes what nothing leads to and nothing else.
func TestSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	r, err := Open("oci:"+dir, Options{})
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
	if freed, err := sweep(dir, time.Hour); err != nil || freed != 0 {
		t.Errorf("within the grace period %d bytes were freed, %v", freed, err)
	}
	leftover := filepath.Join(dir, ".index.json.123")
	if err := os.WriteFile(leftover, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if freed, err := sweep(dir, 0); err != nil || freed != lost.Size {
		t.Errorf("%d bytes were freed, %v; want %d", freed, err, lost.Size)
	}
	if _, err := os.Stat(leftover); err == nil {
		t.Error("what a killed writer left of the index is still there")
	}
	if _, err := os.Stat(filepath.Join(dir, oci.BlobPath(kept.Digest))); err != nil {
		t.Error(err)
	}
}

// A blob that is pushed again is as good as new: a sweep beside the push leaves it.
func TestPresentBlobsAreProtected(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	d := oci.Describe("text/plain", []byte("old"))
	for range 2 {
		r, err := Open("oci:"+dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.PutData(t.Context(), oci.RepoLayer, d); err != nil {
			t.Fatal(err)
		}
		if freed, err := sweep(dir, time.Hour); err != nil || freed != 0 {
			t.Fatalf("%d bytes of a blob just pushed were freed, %v", freed, err)
		}
		old := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, oci.BlobPath(d.Digest)), old, old); err != nil {
			t.Fatal(err)
		}
	}
}

// A process that holds a layout's lock and hangs keeps others out for a time, not for good.
func TestALayoutThatIsHeld(t *testing.T) {
	defer func(d time.Duration) { lockWithin = d }(lockWithin)
	lockWithin = 100 * time.Millisecond
	dir := t.TempDir()
	lock, err := lockLayout(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // only the lock matters
	for _, shared := range []bool{false, true} {
		if _, err := lockLayout(dir, shared); err == nil || !strings.HasSuffix(err.Error(), "another process has held it for 100ms") {
			t.Errorf("shared %t: %v", shared, err)
		}
	}
}
