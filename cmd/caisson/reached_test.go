// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

// A registry without TLS is recognised by what the transport says, on both ways.
func TestPlainRegistryIsHinted(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	r, err := registry.Open(strings.TrimPrefix(s.URL, "http://")+"/x", registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, _, read := r.Manifest(t.Context(), oci.RepoFleet, "index")
	for what, err := range map[string]error{"read": read, "write": r.PutData(t.Context(), oci.RepoFleet, oci.Describe(oci.MediaTypeEmpty, oci.Empty))} {
		var hinted interface{ Hint() string }
		if !errors.As(reached(err), &hinted) || !strings.Contains(hinted.Hint(), "--plain-http") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
