// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newLayout writes a layout with one manifest under node:superhost.
func newLayout(t *testing.T) (dir string, s Source) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "out")
	if err := os.MkdirAll(filepath.Join(dir, "blobs/sha256"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := Describe(MediaTypeManifest, sample).Bare()
	d.Annotations = map[string]string{AnnotationRefName: "node:superhost"}
	write(t, filepath.Join(dir, "oci-layout"), `{"imageLayoutVersion":"1.0.0"}`)
	write(t, filepath.Join(dir, "index.json"), string(Encode(Index{SchemaVersion: 2, MediaType: MediaTypeIndex, Manifests: []Descriptor{d}})))
	write(t, filepath.Join(dir, BlobPath(d.Digest)), string(sample))
	s, err := Open(Ref{Layout: dir}, Options{})
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
	r, err := s.Manifest(t.Context(), RepoNode, "superhost", "")
	if err != nil || string(r.Data) != string(sample) {
		t.Fatalf("Manifest = %+v, %v", r, err)
	}
	if r, err = s.Manifest(t.Context(), RepoNode, "superhost", r.ETag); err != nil || !r.NotModified {
		t.Errorf("with etag: %+v, %v", r, err)
	}
	if _, err := s.Manifest(t.Context(), RepoLayer, "superhost", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("in another repository: %v", err)
	}
	body, err := s.Blob(t.Context(), RepoNode, Describe("", sample), 10)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close() // the test is over
	if got, err := io.ReadAll(body); err != nil || string(got) != string(sample[10:]) {
		t.Errorf("Blob from 10 = %q, %v", got, err)
	}
	write(t, filepath.Join(dir, "index.json"), `{"schemaVersion":2,"manifests":[]}`)
	if _, err := s.Manifest(t.Context(), RepoNode, "superhost", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("after the tag went: %v", err)
	}
}

// TestLayoutStaysInItsFolder plants links and names that lead out of it.
func TestLayoutStaysInItsFolder(t *testing.T) {
	dir, s := newLayout(t)
	secret := filepath.Join(filepath.Dir(dir), "secret")
	write(t, secret, "secret")
	for i, target := range []string{secret, "../../../secret"} {
		d := Describe("", fmt.Append(nil, i))
		d.Size = 6
		if err := os.Symlink(target, filepath.Join(dir, BlobPath(d.Digest))); err != nil {
			t.Fatal(err)
		}
		body, err := s.Blob(t.Context(), RepoNode, d, 0)
		if err == nil {
			got, _ := io.ReadAll(body)
			t.Errorf("a link to %s gives %q", target, got)
		}
		if _, err := s.Manifest(t.Context(), RepoNode, d.Digest, ""); err == nil {
			t.Errorf("a link to %s is a manifest", target)
		}
	}
	for _, digest := range []string{"sha256:../../../secret", "../../secret", "sha256:" + strings.Repeat("A", 64), ""} {
		if _, err := s.Blob(t.Context(), RepoNode, Descriptor{Digest: digest, Size: 6}, 0); err == nil {
			t.Errorf("a blob under %q", digest)
		}
	}
	for _, tag := range []string{"../secret", "a/b", "", strings.Repeat("x", 129), "a\x00b"} {
		if _, err := s.Manifest(t.Context(), RepoNode, tag, ""); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("tag %q: %v, want that it is not valid", tag, err)
		}
	}
}

func TestLayoutThatIsNone(t *testing.T) {
	for what, dir := range map[string]string{"missing": "/nonexistent", "empty": t.TempDir()} {
		if _, err := Open(Ref{Layout: dir}, Options{}); err == nil {
			t.Errorf("a folder that is %s was opened", what)
		}
	}
	dir, s := newLayout(t)
	for _, text := range []string{"", "{", `{"schemaVersion":2,"manifests":[{"digest":"x"}]}`, `{"manifests":[],"Manifests":[]}`, `{"mediaType":"text/plain"}`} {
		write(t, filepath.Join(dir, "index.json"), text)
		if _, err := s.Manifest(t.Context(), RepoNode, "superhost", ""); err == nil || !strings.Contains(err.Error(), "index.json") {
			t.Errorf("index.json %q: %v", text, err)
		}
	}
}

func TestParseRef(t *testing.T) {
	for s, want := range map[string]Ref{
		"registry.example.org:5000/metal-a": {Host: "registry.example.org:5000", Prefix: "metal-a"},
		"registry.example.org/a/b-c_d.e":    {Host: "registry.example.org", Prefix: "a/b-c_d.e"},
		"localhost":                         {Host: "localhost"},
		"[::1]:5000/x/":                     {Host: "[::1]:5000", Prefix: "x"},
		"oci:./out":                         {Layout: "out"},
		"oci:/srv/out/":                     {Layout: "/srv/out"},
	} {
		got, err := ParseRef(s)
		if err != nil || got != want {
			t.Errorf("ParseRef(%q) = %+v, %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "oci:", "https://x/y", "user@host/x", "host/x:tag", "host/x@sha256:00", "host/../x", "host//x", "host/X", "host:/x", "host:x/y", "/x", "ho st/x", "host?q/x", "host#f"} {
		if got, err := ParseRef(s); err == nil {
			t.Errorf("ParseRef(%q) = %+v, want an error", s, got)
		}
	}
	if got := (Ref{Host: "h", Prefix: "a/b"}).Repo("node"); got != "a/b/node" {
		t.Errorf("Repo = %q", got)
	}
	if got := (Ref{Host: "h"}).Repo("node"); got != "node" {
		t.Errorf("Repo without prefix = %q", got)
	}
}
