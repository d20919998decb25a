// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

// TestHandlerOnTheWire asks as tools and nodes do, byte by byte.
func TestHandlerOnTheWire(t *testing.T) {
	dir := t.TempDir()
	w := open(t, "oci:"+filepath.Join(dir, "out"))
	digest := push(t, w, "one", "superhost")
	d := oci.Describe(oci.TypeSquashfs, []byte("0123456789"))
	if err := w.PutData(t.Context(), "layer", d); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := registry.Handler(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	blob := "/v2/metal-a/layer/blobs/" + d.Digest
	for _, c := range []struct {
		what, method, path string
		header             http.Header
		status             int
		want               string            // body, "" is any
		headers            map[string]string // some of the answer's
	}{
		{"ping", "GET", "/v2/", nil, 200, "{}", map[string]string{"Docker-Distribution-Api-Version": "registry/2.0"}},
		{"tag", "GET", "/v2/a/b/c/node/manifests/superhost", nil, 200, "", map[string]string{"Content-Type": oci.MediaTypeManifest, "Docker-Content-Digest": digest, "Etag": `"` + digest + `"`}},
		{"tag without prefix", "GET", "/v2/node/manifests/superhost", nil, 200, "", nil},
		{"digest", "GET", "/v2/metal-a/node/manifests/" + digest, nil, 200, "", nil},
		{"head", "HEAD", "/v2/metal-a/node/manifests/superhost", nil, 200, "", map[string]string{"Docker-Content-Digest": digest}},
		{"unchanged", "GET", "/v2/metal-a/node/manifests/superhost", http.Header{"If-None-Match": {`"` + digest + `"`}}, 304, "", nil},
		{"changed", "GET", "/v2/metal-a/node/manifests/superhost", http.Header{"If-None-Match": {`"other"`}}, 200, "", nil},
		{"no such tag", "GET", "/v2/metal-a/node/manifests/other", nil, 404, "", nil},
		{"another repository's tag", "GET", "/v2/metal-a/layer/manifests/superhost", nil, 404, "", nil},
		{"blob", "GET", blob, nil, 200, "0123456789", map[string]string{"Accept-Ranges": "bytes"}},
		{"open range", "GET", blob, http.Header{"Range": {"bytes=4-"}}, 206, "456789", map[string]string{"Content-Range": "bytes 4-9/10"}},
		{"closed range", "GET", blob, http.Header{"Range": {"bytes=4-6"}}, 206, "456", map[string]string{"Content-Range": "bytes 4-6/10"}},
		{"range beyond the end", "GET", blob, http.Header{"Range": {"bytes=99-"}}, 416, "", nil},
		{"no such blob", "GET", "/v2/metal-a/layer/blobs/" + oci.Digest(nil), nil, 404, "", nil},
		{"tags", "GET", "/v2/metal-a/node/tags/list", nil, 200, `{"name":"metal-a/node","tags":["superhost"]}` + "\n", nil},
		{"no tags", "GET", "/v2/metal-a/fleet/tags/list", nil, 200, `{"name":"metal-a/fleet","tags":[]}` + "\n", nil},
		{"no referrers", "GET", "/v2/metal-a/node/referrers/" + digest, nil, 200, "", map[string]string{"Content-Type": oci.MediaTypeIndex}},
		{"path that climbs", "GET", "/v2/metal-a/layer/blobs/..%2f..%2f..%2fsecret", nil, 404, "", nil},
		{"digest that climbs", "GET", "/v2/metal-a/layer/blobs/sha256:../../../secret", nil, 404, "", nil},
		{"tag that climbs", "GET", "/v2/metal-a/node/manifests/..%2f..%2findex.json", nil, 404, "", nil},
		{"short digest", "GET", "/v2/metal-a/layer/blobs/sha256:00", nil, 400, "", nil},
		{"upload", "POST", "/v2/metal-a/layer/blobs/uploads/", nil, 405, "", nil},
		{"delete", "DELETE", "/v2/metal-a/node/manifests/" + digest, nil, 405, "", nil},
		{"elsewhere", "GET", "/secret", nil, 404, "", nil},
	} {
		req, err := http.NewRequest(c.method, server.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.header != nil {
			req.Header = c.header
		}
		resp, err := http.DefaultTransport.RoundTrip(req) // follows nothing
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status && !(c.status == 404 && resp.StatusCode == 307) || err != nil {
			t.Errorf("%s: status %d, want %d: %s", c.what, resp.StatusCode, c.status, body)
		}
		if c.want != "" && string(body) != c.want || strings.Contains(string(body), "hush") {
			t.Errorf("%s: %q, want %q", c.what, body, c.want)
		}
		for key, want := range c.headers {
			if got := resp.Header.Get(key); got != want {
				t.Errorf("%s: %s is %q, want %q", c.what, key, got, want)
			}
		}
	}
}

// TestLayoutIsTheStandardOne holds the directory to the OCI image layout.
func TestLayoutIsTheStandardOne(t *testing.T) {
	dir := t.TempDir()
	w := open(t, "oci:"+dir)
	digest := push(t, w, "one", "superhost")
	marker, err := os.ReadFile(filepath.Join(dir, "oci-layout"))
	if err != nil || string(marker) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout = %q, %v", marker, err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	x, err := oci.ParseIndex(raw)
	if err != nil || len(x.Manifests) != 1 {
		t.Fatalf("index.json = %s, %v", raw, err)
	}
	if d := x.Manifests[0]; d.Digest != digest || d.Annotations[oci.AnnotationRefName] != "node:superhost" || d.Data != nil || d.ArtifactType != oci.TypeOverlay {
		t.Errorf("entry = %+v", d)
	}
	if err := os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"2.0.0"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Open("oci:"+dir, registry.Options{}); err == nil || !strings.Contains(err.Error(), "not version 1.0.0") {
		t.Errorf("a layout of another version was opened: %v", err)
	}
}

// TestDamagedLayoutIsNoticed: a blob that rotted is not served to those who read here.
func TestDamagedLayoutIsNoticed(t *testing.T) {
	dir := t.TempDir()
	w := open(t, "oci:"+dir)
	digest := push(t, w, "one", "superhost")
	name := filepath.Join(dir, oci.BlobPath(digest))
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	good[len(good)/2] ^= 1 // the same size, as rot is
	if err := os.WriteFile(name, good, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Manifest(t.Context(), "node", "superhost"); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a rotten manifest was read: %v", err)
	}
	again := push(t, w, "one", "superhost")
	if _, _, err := w.Manifest(t.Context(), "node", "superhost"); err != nil || again != digest {
		t.Errorf("writing it again does not heal it: %v", err)
	}
}

// TestHandlerStaysInTheLayout: a link in the layout is not served, and no answer
// names a path of this machine.
func TestHandlerStaysInTheLayout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	push(t, open(t, "oci:"+dir), "one", "superhost")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	digest := oci.Digest([]byte("secret"))
	if err := os.Symlink(secret, filepath.Join(dir, oci.BlobPath(digest))); err != nil {
		t.Fatal(err)
	}
	h, err := registry.Handler(dir)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Body.String()
	}
	for _, path := range []string{"/v2/layer/blobs/" + digest, "/v2/layer/manifests/" + digest} {
		if body := get(path); strings.Contains(body, "secret") {
			t.Errorf("%s: %s", path, body)
		}
	}
	if err := os.Remove(filepath.Join(dir, "index.json")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v2/node/manifests/superhost", "/v2/node/tags/list", "/v2/node/referrers/" + digest} {
		if body := get(path); strings.Contains(body, dir) || !strings.Contains(body, "UNKNOWN") {
			t.Errorf("%s: %s", path, body)
		}
	}
}

// A manifest that could not be read when somebody asked is attached for the next one who asks.
func TestReferrersAreReadAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	w := open(t, "oci:"+dir)
	subject := push(t, w, "one", "superhost")
	raw, blobs := oci.DocumentManifest(oci.TypeReport, []byte("{}"))
	for _, b := range blobs {
		if err := w.PutData(t.Context(), "node", b); err != nil {
			t.Fatal(err)
		}
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		t.Fatal(err)
	}
	m.Subject = &oci.Descriptor{MediaType: oci.MediaTypeManifest, Digest: subject, Size: 1}
	digest, err := w.PutManifest(t.Context(), "node", oci.MediaTypeManifest, oci.Encode(*m))
	if err != nil {
		t.Fatal(err)
	}
	h, err := registry.Handler(dir)
	if err != nil {
		t.Fatal(err)
	}
	lists := func() bool {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v2/node/referrers/"+subject, nil))
		return w.Code == http.StatusOK && strings.Contains(w.Body.String(), digest)
	}
	blob := filepath.Join(dir, oci.BlobPath(digest))
	if err := os.Rename(blob, blob+".away"); err != nil {
		t.Fatal(err)
	}
	if lists() {
		t.Error("what cannot be read is listed")
	}
	if err := os.Rename(blob+".away", blob); err != nil {
		t.Fatal(err)
	}
	if !lists() {
		t.Error("it is not listed once it can be read")
	}
}
