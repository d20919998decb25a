// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"

	"github.com/caisson-os/caisson/oci"
)

// asked is a registry that remembers what it was asked.
func asked(t *testing.T, in func(w http.ResponseWriter, req *http.Request, next http.Handler)) (*Registry, func() []string) {
	t.Helper()
	var mutex sync.Mutex
	var list []string
	next := ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mutex.Lock()
		what, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/v2/metal-a/node/"), ":")
		if strings.HasPrefix(what, "blobs/uploads/") {
			what = "upload"
		}
		list = append(list, req.Method+" "+what)
		mutex.Unlock()
		in(w, req, next)
	}))
	t.Cleanup(server.Close)
	r, err := Open(strings.TrimPrefix(server.URL, "http://")+"/metal-a", Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	return r, func() []string {
		mutex.Lock()
		defer mutex.Unlock()
		got := slices.DeleteFunc(list, func(s string) bool { return s == "GET /v2/" }) // the library greets once
		list = nil
		return got
	}
}

// Publishing a node is two requests a blob and one a tag.
func TestSmallBlobs(t *testing.T) {
	r, requests := asked(t, func(w http.ResponseWriter, req *http.Request, next http.Handler) { next.ServeHTTP(w, req) })
	for n, want := range [][]string{
		{"POST upload", "PUT upload", "POST upload", "PUT upload", "PUT manifests/n0"},
		{"POST upload", "PUT upload", "PUT manifests/n1"}, // the configuration is there
	} {
		raw, blobs := oci.OverlayManifest([]byte{'{', byte('0' + n), '}'})
		for _, d := range blobs {
			if err := r.PutData(t.Context(), oci.RepoNode, d); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.PutManifest(t.Context(), oci.RepoNode, oci.MediaTypeManifest, raw, "n"+string(rune('0'+n))); err != nil {
			t.Fatal(err)
		}
		if got := requests(); !slices.Equal(got, want) {
			t.Errorf("node %d: %q, want %q", n, got, want)
		}
	}
}

// Where a registry does not take a blob in two requests, the library brings it, and
// nothing follows to another host.
func TestSmallBlobsElsewhere(t *testing.T) {
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { t.Errorf("%s %s", req.Method, req.URL) }))
	defer stranger.Close()
	for name, first := range map[string]func(w http.ResponseWriter){
		"busy": func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"another host": func(w http.ResponseWriter) {
			w.Header().Set("Location", stranger.URL+"/upload?state=x")
			w.WriteHeader(http.StatusAccepted)
		},
		"no place": func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) },
	} {
		begun := false
		r, _ := asked(t, func(w http.ResponseWriter, req *http.Request, next http.Handler) {
			if req.Method == http.MethodPost && !begun {
				begun = true
				first(w)
				return
			}
			next.ServeHTTP(w, req)
		})
		d := oci.Describe("text/plain", []byte(name))
		if err := r.PutData(t.Context(), oci.RepoNode, d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if there, err := r.HasBlob(t.Context(), oci.RepoNode, d); !there || err != nil {
			t.Errorf("%s: %t, %v", name, there, err)
		}
	}
}
