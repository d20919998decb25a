// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci"
)

// newLayout writes a layout with one manifest under node:superhost.
func newLayout(t *testing.T) (dir string, s oci.Source) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "out")
	if err := os.MkdirAll(filepath.Join(dir, "blobs/sha256"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := oci.Describe(oci.MediaTypeManifest, sample).Bare()
	d.Annotations = map[string]string{oci.AnnotationRefName: "node:superhost"}
	write(t, filepath.Join(dir, "oci-layout"), `{"imageLayoutVersion":"1.0.0"}`)
	write(t, filepath.Join(dir, "index.json"), string(oci.Encode(oci.Index{SchemaVersion: 2, MediaType: oci.MediaTypeIndex, Manifests: []oci.Descriptor{d}})))
	write(t, filepath.Join(dir, oci.BlobPath(d.Digest)), string(sample))
	s, err := Open(oci.Ref{Layout: dir}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return dir, s
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func TestLayout(t *testing.T) {
	dir, s := newLayout(t)
	r, err := s.Manifest(t.Context(), oci.RepoNode, "superhost", "")
	if err != nil || string(r.Data) != string(sample) {
		t.Fatalf("Manifest = %+v, %v", r, err)
	}
	if r, err = s.Manifest(t.Context(), oci.RepoNode, "superhost", r.ETag); err != nil || !r.NotModified {
		t.Errorf("with etag: %+v, %v", r, err)
	}
	if _, err := s.Manifest(t.Context(), oci.RepoLayer, "superhost", ""); !errors.Is(err, oci.ErrNotFound) {
		t.Errorf("in another repository: %v", err)
	}
	body, err := s.Blob(t.Context(), oci.RepoNode, oci.Describe("", sample), 10)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close() // the test is over
	if got, err := io.ReadAll(body); err != nil || string(got) != string(sample[10:]) {
		t.Errorf("Blob from 10 = %q, %v", got, err)
	}
	write(t, filepath.Join(dir, "index.json"), `{"schemaVersion":2,"manifests":[]}`)
	if _, err := s.Manifest(t.Context(), oci.RepoNode, "superhost", ""); !errors.Is(err, oci.ErrNotFound) {
		t.Errorf("after the tag went: %v", err)
	}
}

// TestLayoutStaysInItsFolder plants links and names that lead out of it.
func TestLayoutStaysInItsFolder(t *testing.T) {
	dir, s := newLayout(t)
	secret := filepath.Join(filepath.Dir(dir), "secret")
	write(t, secret, "secret")
	for i, target := range []string{secret, "../../../secret"} {
		d := oci.Describe("", fmt.Append(nil, i))
		d.Size = 6
		if err := os.Symlink(target, filepath.Join(dir, oci.BlobPath(d.Digest))); err != nil {
			t.Fatal(err)
		}
		body, err := s.Blob(t.Context(), oci.RepoNode, d, 0)
		if err == nil {
			got, _ := io.ReadAll(body)
			t.Errorf("a link to %s gives %q", target, got)
		}
		if _, err := s.Manifest(t.Context(), oci.RepoNode, d.Digest, ""); err == nil {
			t.Errorf("a link to %s is a manifest", target)
		}
	}
	for _, digest := range []string{"sha256:../../../secret", "../../secret", "sha256:" + strings.Repeat("A", 64), ""} {
		if _, err := s.Blob(t.Context(), oci.RepoNode, oci.Descriptor{Digest: digest, Size: 6}, 0); err == nil {
			t.Errorf("a blob under %q", digest)
		}
	}
	for _, tag := range []string{"../secret", "a/b", "", strings.Repeat("x", 129), "a\x00b"} {
		if _, err := s.Manifest(t.Context(), oci.RepoNode, tag, ""); err == nil || errors.Is(err, oci.ErrNotFound) {
			t.Errorf("tag %q: %v, want that it is not valid", tag, err)
		}
	}
}

func TestLayoutThatIsNone(t *testing.T) {
	for what, dir := range map[string]string{"missing": "/nonexistent", "empty": t.TempDir()} {
		if _, err := Open(oci.Ref{Layout: dir}, Options{}); err == nil {
			t.Errorf("a folder that is %s was opened", what)
		}
	}
	dir, s := newLayout(t)
	for _, text := range []string{"", "{", `{"schemaVersion":2,"manifests":[{"digest":"x"}]}`, `{"manifests":[],"Manifests":[]}`, `{"mediaType":"text/plain"}`} {
		write(t, filepath.Join(dir, "index.json"), text)
		if _, err := s.Manifest(t.Context(), oci.RepoNode, "superhost", ""); err == nil || !strings.Contains(err.Error(), "index.json") {
			t.Errorf("index.json %q: %v", text, err)
		}
	}
}
