// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci"
)

// TestMuted: where somebody else chose who is asked, nothing of what answers there but its status is
// in an error, for an answer of the place itself, of one that it leads to, and of its token server.
func TestMuted(t *testing.T) {
	const secret = "the inside of the cluster"
	inside := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secret, http.StatusTeapot) })
	elsewhere := httptest.NewServer(inside)
	t.Cleanup(elsewhere.Close)
	var realm string
	for name, h := range map[string]http.Handler{
		"itself":   inside,
		"redirect": http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, elsewhere.URL, http.StatusFound) }),
		"token": http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if strings.HasPrefix(req.URL.Path, "/token") {
				inside(w, req)
				return
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`/token",service="x"`)
			http.Error(w, secret, http.StatusUnauthorized)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(h)
			t.Cleanup(s.Close)
			realm = s.URL
			for _, mute := range []bool{true, false} {
				src, err := Open(oci.Ref{Host: strings.TrimPrefix(s.URL, "http://"), Prefix: "fleet"}, Options{PlainHTTP: true, Mute: mute})
				if err != nil {
					t.Fatal(err)
				}
				_, err = src.Manifest(context.Background(), oci.RepoFleet, "index", "")
				if err == nil || strings.Contains(err.Error(), secret) && mute || !strings.Contains(err.Error(), secret) && !mute && name != "token" {
					t.Errorf("mute %v: %v", mute, err)
				}
			}
		})
	}
}
