// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// TestEndlessList: a service that lists few nodes a page, each as long as an answer may be, does not
// fill the memory of who asks.
func TestEndlessList(t *testing.T) {
	var pages atomic.Int64
	long := strings.Repeat("x", maxAnswer-1000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n := pages.Add(1); n < 5 {
			fmt.Fprintf(w, `{"all": 1000, "nodes": [{"name": "n%d", "why": "%s"}]}`, n, long)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer s.Close()
	if _, err := (&Client{At: s.URL}).Nodes(t.Context(), url.Values{}); err == nil || !strings.Contains(err.Error(), "bytes of each") {
		t.Errorf("after %d pages: %v", pages.Load(), err)
	}
}
