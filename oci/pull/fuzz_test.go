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

// FuzzParseRef wants that a reference never leads to another host than it shows.
func FuzzParseRef(f *testing.F) {
	for _, s := range []string{"registry.example.org:5000/metal-a", "oci:./out", "[::1]:5000/x", "user@host/x", "host/../x", "https://x", "host:port"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := oci.ParseRef(s)
		if err != nil {
			return
		}
		again, err := oci.ParseRef(r.String())
		if err != nil || again != r {
			t.Fatalf("ParseRef(%q) = %+v, and read again %+v, %v", s, r, again, err)
		}
		if !r.IsLayout() {
			o, err := openRegistry(r, Options{}, wholeRegistry)
			if err != nil {
				t.Fatal(err)
			}
			if want := "https://" + r.Host + "/v2/"; len(o.base) < len(want) || o.base[:len(want)] != want {
				t.Fatalf("ParseRef(%q) leads to %s", s, o.base)
			}
		}
	})
}

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
