// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/internal/strict"
)

// Handler serves the layout in dir as a read-only registry: all that a booting
// node asks for, and the referrers API for people's tools. Any prefix before the
// repository's name is accepted, so a fleet's reference works unchanged. What
// links lead to outside of dir is not served.
func Handler(dir string) (http.Handler, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("serve layout: %w", err)
	}
	h := &handler{root: root, attached: map[string]attached{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte("{}"))
	})
	mux.HandleFunc("GET /v2/", h.serve)
	mux.HandleFunc("/v2/", func(w http.ResponseWriter, _ *http.Request) {
		Fail(w, http.StatusMethodNotAllowed, "UNSUPPORTED",
			"this registry is read-only: what is published goes into the directory that it serves")
	})
	return mux, nil
}

type handler struct {
	root     *os.Root
	mu       sync.Mutex
	seen     os.FileInfo
	index    *index
	attached map[string]attached // by manifest digest; content does not change
}

var route = regexp.MustCompile(`^/v2/(?:.+/)?([a-z0-9._-]+)/(manifests|blobs|referrers|tags)/([^/]+)$`)

// ParsePath returns what a request asks for: the repository without its prefix, one of manifests,
// blobs, referrers and tags, and which of these. It is false for other paths.
func ParsePath(path string) (repo, kind, what string, ok bool) {
	part := route.FindStringSubmatch(path)
	if part == nil {
		return "", "", "", false
	}
	return part[1], part[2], part[3], true
}

func (h *handler) serve(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	repo, kind, what, ok := ParsePath(req.URL.Path)
	switch {
	case !ok:
		Fail(w, http.StatusNotFound, "NAME_UNKNOWN", "no such path")
	case kind == "manifests":
		h.manifest(w, req, repo, what)
	case kind == "blobs" && oci.ValidDigest(what):
		h.blob(w, req, what, "application/octet-stream")
	case kind == "referrers" && oci.ValidDigest(what):
		h.referrers(w, req, what)
	case kind == "tags" && what == "list":
		h.tags(w, repo, strings.TrimSuffix(strings.TrimPrefix(req.URL.Path, "/v2/"), "/tags/list"))
	default:
		Fail(w, http.StatusBadRequest, "DIGEST_INVALID", "not a digest")
	}
}

func (h *handler) manifest(w http.ResponseWriter, req *http.Request, repo, reference string) {
	x := h.current(w)
	if x == nil {
		return
	}
	d, ok := x.names[repo+":"+reference]
	if oci.ValidDigest(reference) {
		d, ok = h.byDigest(reference)
	}
	if !ok {
		Fail(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "no such manifest")
		return
	}
	h.blob(w, req, d.Digest, d.MediaType)
}

// byDigest finds a manifest that no index entry may name, for example one below
// an index: its own bytes say which kind it is.
func (h *handler) byDigest(digest string) (oci.Descriptor, bool) {
	raw, err := strict.ReadFileCapped(h.root, oci.BlobPath(digest), oci.MaxManifest)
	var kind struct {
		MediaType string `json:"mediaType"`
	}
	if err != nil || json.Unmarshal(raw, &kind) != nil || kind.MediaType == "" {
		return oci.Descriptor{}, false
	}
	return oci.Descriptor{MediaType: kind.MediaType, Digest: digest}, true
}

// blob leaves conditions and ranges, open and closed, to net/http.
func (h *handler) blob(w http.ResponseWriter, req *http.Request, digest, mediaType string) {
	f, err := h.root.Open(oci.BlobPath(digest))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		Fail(w, http.StatusNotFound, "BLOB_UNKNOWN", "no such blob")
		return
	case err != nil:
		Fail(w, http.StatusInternalServerError, "UNKNOWN", "cannot read the blob")
		return
	}
	defer f.Close() // only read
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("ETag", `"`+digest+`"`)
	http.ServeContent(w, req, "", time.Time{}, f)
}

func (h *handler) referrers(w http.ResponseWriter, req *http.Request, digest string) {
	x := h.current(w)
	if x == nil {
		return
	}
	want := req.URL.Query().Get("artifactType")
	list := slices.DeleteFunc(x.referrers(digest, h.readAttached), func(d oci.Descriptor) bool { return want != "" && d.ArtifactType != want })
	out := oci.Index{SchemaVersion: 2, MediaType: oci.MediaTypeIndex, Manifests: append([]oci.Descriptor{}, list...)}
	if want != "" {
		w.Header().Set("OCI-Filters-Applied", "artifactType")
	}
	w.Header().Set("Content-Type", oci.MediaTypeIndex)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(oci.Encode(out)))
}

// tags lists a repository under the name that it was asked for by.
func (h *handler) tags(w http.ResponseWriter, repo, name string) {
	x := h.current(w)
	if x == nil {
		return
	}
	tags := append([]string{}, x.tags(repo)...)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "tags": tags}) // a client that has gone cannot be answered
}

// current reads index.json again when another file has taken its place. Where that fails it answers, and returns nil.
func (h *handler) current(w http.ResponseWriter) *index {
	h.mu.Lock()
	defer h.mu.Unlock()
	info, err := h.root.Stat("index.json")
	if err == nil && h.seen != nil && os.SameFile(info, h.seen) && info.ModTime().Equal(h.seen.ModTime()) && info.Size() == h.seen.Size() {
		return h.index
	}
	var x *index
	if err == nil {
		x, err = readIndex(h.root)
	}
	if err != nil {
		Fail(w, http.StatusInternalServerError, "UNKNOWN", "cannot read the index")
		return nil
	}
	h.index, h.seen = x, info
	return x
}

func (h *handler) readAttached(digest string) (a attached, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a, ok := h.attached[digest]
	if ok {
		return a, nil
	}
	if a, err = readAttached(h.root, digest); err == nil { // else the next one who asks may read it
		h.attached[digest] = a
	}
	return a, err
}

// Fail answers with an error as the distribution specification has it.
func Fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	answer := map[string]any{"errors": []map[string]string{{"code": code, "message": message}}}
	_ = json.NewEncoder(w).Encode(answer) // a client that has gone cannot be answered
}
