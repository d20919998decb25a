// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

// TestNothingIsKeptOfNothing: strangers choose the digests that they ask for, and of those that the
// registry does not have nothing stays in memory.
func TestNothingIsKeptOfNothing(t *testing.T) {
	h, err := registry.Handler(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	behind := httptest.NewServer(h)
	defer behind.Close()
	from, err := registry.Open(behind.Listener.Addr().String()+"/metal", registry.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStore(t.Context(), from, Options{Dir: t.TempDir(), Most: 1 << 20, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		w := httptest.NewRecorder()
		s.serve(w, httptest.NewRequest(http.MethodGet, "/", nil), "layer", oci.Digest([]byte(fmt.Sprint(i))))
		if w.Code != http.StatusNotFound {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sound)+len(s.arriving) > 0 {
		t.Errorf("%d digests are remembered, %d arrive", len(s.sound), len(s.arriving))
	}
}
