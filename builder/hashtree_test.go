// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/spec"
)

// TestCompleteRoot: a cached step without roots gets its own, and keeps them.
func TestCompleteRoot(t *testing.T) {
	dir, data := t.TempDir(), bytes.Repeat([]byte("image of a step "), 2*verity.Block/16)
	if err := os.WriteFile(filepath.Join(dir, imageName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	image := &spec.Image{Name: "base", Blob: spec.Blob{Digest: digests.Of(data), Size: int64(len(data))}}
	older := made{Key: "k", Image: image, dir: dir}
	if err := older.write(dir); err != nil {
		t.Fatal(err)
	}
	want, err := verity.Root(bytes.NewReader(data), int64(len(data)), verity.Hash(sha256.Sum256(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"at first", "again"} {
		m, err := (&build{}).cached("base", dir, "k")
		if err != nil || m == nil || m.Root != want.String() {
			t.Fatalf("%s: %+v, %v; want root %s", when, m, err, want)
		}
		if err := os.Remove(filepath.Join(dir, imageName)); err != nil && when == "at first" { // so that the second one is not made again
			t.Fatal(err)
		}
	}
}
