// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// TestArchive: what was fetched is there without the mirror, a package also for the next archive;
// what a mirror has not is not there.
func TestArchive(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	asked := 0
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked++
		if req.URL.Path == "/debian/none" {
			http.NotFound(w, req)
			return
		}
		fmt.Fprint(w, "content of ", req.URL.Path)
	}))
	defer mirror.Close()
	get := func(a *Archive, path string) (int, string) {
		t.Helper()
		at, err := url.Parse(a.URL)
		if err != nil {
			t.Fatal(err)
		}
		client := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at), DisableKeepAlives: true}}
		resp, err := client.Get(mirror.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	for n, wants := range []map[string]int{{"/debian/pool/a.deb": 1, "/debian/dists/Release": 2}, {"/debian/pool/a.deb": 2,
		"/debian/dists/Release": 3}} {
		a, err := NewArchive(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		for _, path := range []string{"/debian/pool/a.deb", "/debian/dists/Release"} {
			for range 2 {
				if status, text := get(a, path); status != http.StatusOK || text != "content of "+path {
					t.Errorf("%s: %d %q", path, status, text)
				}
			}
			if asked != wants[path] {
				t.Errorf("archive %d, %s: the mirror was asked %d times, want %d", n, path, asked, wants[path])
			}
		}
		if n == 0 {
			continue
		}
		if status, _ := get(a, "/debian/none"); status != http.StatusNotFound {
			t.Errorf("a missing file: %d", status)
		}
	}
}
