// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
)

// An operator's tools ask again where a registry could not answer, a node does at its
// next look.
func TestAskedAgain(t *testing.T) {
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(), Layers: []oci.Descriptor{}})
	for _, row := range []struct {
		name       string
		status     int
		fails      int // so many answers are of the status
		node       bool
		asks, ends int // how often it is asked, and the status that ends it
	}{
		{"a moment", http.StatusInternalServerError, 2, false, 3, 0},
		{"behind a proxy", http.StatusBadGateway, 1, false, 2, 0},
		{"for ever", http.StatusServiceUnavailable, 100, false, again + 1, http.StatusServiceUnavailable},
		{"a decision", http.StatusForbidden, 100, false, 1, http.StatusForbidden},
		{"a node", http.StatusInternalServerError, 1, true, 1, http.StatusInternalServerError},
	} {
		t.Run(row.name, func(t *testing.T) {
			asks := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if asks++; asks <= row.fails {
					http.Error(w, "not now", row.status)
					return
				}
				w.Header().Set("Content-Type", oci.MediaTypeManifest)
				_, _ = w.Write(raw) // the client says what it got
			}))
			defer server.Close()
			ref := strings.TrimPrefix(server.URL, "http://") + "/fleet-a"
			r, err := Open(ref, Options{PlainHTTP: true})
			if err != nil {
				t.Fatal(err)
			}
			source := r.Source()
			if row.node {
				if source, err = pull.Open(r.Ref(), Options{PlainHTTP: true}); err != nil {
					t.Fatal(err)
				}
			}
			_, err = source.Manifest(t.Context(), oci.RepoFleet, "index", "")
			var status *pull.StatusError
			if errors.As(err, &status); asks != row.asks || row.ends == 0 && err != nil || row.ends != 0 && (status == nil || status.Status != row.ends) {
				t.Errorf("asked %d times: %v", asks, err)
			}
		})
	}
}

// A registry may lose sight of a blob while another publisher brings the same one. One
// that knows it no better after a while does not have it.
func TestBlobOutOfSight(t *testing.T) {
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(), Layers: []oci.Descriptor{}})
	for _, row := range []struct {
		name, code string
		fails      int // so many answers are that
		puts       int
	}{
		{"a moment", "MANIFEST_BLOB_UNKNOWN", 2, 3},
		{"for ever", "MANIFEST_BLOB_UNKNOWN", 100, unknownTries},
		{"another reason", "MANIFEST_INVALID", 100, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			puts := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				switch {
				case q.Method != http.MethodPut:
					w.WriteHeader(http.StatusOK)
					return
				case puts >= row.fails:
					w.WriteHeader(http.StatusCreated)
				default:
					w.WriteHeader(http.StatusBadRequest)
					_, _ = fmt.Fprintf(w, `{"errors":[{"code":"DIGEST_INVALID"},{"code":%q}]}`, row.code) // the client says what it got
				}
				puts++
			}))
			defer server.Close()
			r, err := Open(strings.TrimPrefix(server.URL, "http://")+"/fleet-a", Options{PlainHTTP: true})
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.PutManifest(t.Context(), oci.RepoFleet, oci.MediaTypeManifest, raw, "index")
			if done := err == nil; puts != row.puts || done != (row.puts > row.fails) {
				t.Errorf("put %d times: %v", puts, err)
			}
		})
	}
}
