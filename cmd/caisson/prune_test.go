// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/test/registrytest"
)

// TestPruneWhereNothingIsDeleted: prune names what stays, removes nothing in words, and ends
// with exit code 1, each time that it is run.
func TestPruneWhereNothingIsDeleted(t *testing.T) {
	for _, status := range []int{http.StatusMethodNotAllowed, http.StatusNotFound} {
		proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registrytest.WithReferrers(t)})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Method == http.MethodDelete {
				http.Error(w, `{"errors":[{"code":"UNSUPPORTED"}]}`, status)
				return
			}
			proxy.ServeHTTP(w, q)
		}))
		defer server.Close()
		s := newShelf(t)
		s.ref = strings.TrimPrefix(server.URL, "http://") + "/test"
		var err error
		if s.reg, err = registry.Open(s.ref, registry.Options{PlainHTTP: true}); err != nil {
			t.Fatal(err)
		}
		s.p.Registry = s.reg
		digest := s.put("1", "2026-01-01T00:00:00Z", map[string]string{"v": "1"})
		s.put("2", "2026-01-02T00:00:00Z", map[string]string{"v": "2"})
		for range 2 {
			out, err := s.run("prune", s.ref, "--plain-http", "--keep", "1")
			if cli.Code(err) != 1 || !strings.Contains(err.Error(), "the registry did not remove") {
				t.Errorf("%d: %v", status, err)
			}
			if !strings.Contains(out, "layer:1  stays\n") || !strings.Contains(out, "layer@"+digest+"  stays\n") || strings.Contains(out, "removed") || strings.Contains(out, "layer:2  stays") {
				t.Errorf("%d: %s", status, out)
			}
		}
	}
}
