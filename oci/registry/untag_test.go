// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/test/registrytest"
)

// TestUntag removes one of two tags of an artifact; the other one stays.
func TestUntag(t *testing.T) {
	places := map[string]string{
		"layout":          "oci:" + t.TempDir(),
		"docker-registry": registrytest.Distribution(t) + "/metal-a",
		"in memory":       registrytest.WithReferrers(t) + "/metal-a",
	}
	for name, ref := range places {
		t.Run(name, func(t *testing.T) {
			r, err := registry.Open(ref, registry.Options{PlainHTTP: true})
			if err != nil {
				t.Fatal(err)
			}
			digest := push(t, r, "one", "superhost", "alias")
			for range 2 { // the second time it is gone already
				if err := r.Untag(t.Context(), "node", "alias"); err != nil {
					t.Fatal(err)
				}
			}
			if tags, err := r.Tags(t.Context(), "node"); err != nil || !slices.Equal(tags, []string{"superhost"}) {
				t.Errorf("tags %q, %v", tags, err)
			}
			if raw, _, err := r.Manifest(t.Context(), "node", "superhost"); err != nil || oci.Digest(raw) != digest {
				t.Errorf("what it led to: %v", err)
			}
			if _, _, err := r.Manifest(t.Context(), "node", "alias"); !errors.Is(err, oci.ErrNotFound) {
				t.Errorf("the tag: %v", err)
			}
		})
	}
}

// TestUntagWhereNothingIsDeleted: the tag leads to nothing that a node takes.
func TestUntagWhereNothingIsDeleted(t *testing.T) {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registrytest.WithReferrers(t)})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodDelete {
			http.Error(w, `{"errors":[{"code":"UNSUPPORTED"}]}`, http.StatusMethodNotAllowed)
			return
		}
		proxy.ServeHTTP(w, q)
	}))
	defer s.Close()
	r, err := registry.Open(strings.TrimPrefix(s.URL, "http://")+"/metal-a", registry.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	push(t, r, "one", "superhost", "alias")
	if err := r.Untag(t.Context(), "node", "alias"); err != nil {
		t.Fatal(err)
	}
	raw, _, err := r.Manifest(t.Context(), "node", "alias")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := oci.ParseManifest(raw); err != nil || m.ArtifactType != oci.TypeGone {
		t.Errorf("the tag leads to %s, %v", raw, err)
	}
}
