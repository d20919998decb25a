// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ggcr "github.com/google/go-containerregistry/pkg/registry"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec/refusal"
)

// TestPushOverTLS pushes to an address that the library would take for one
// without TLS, with a password.
func TestPushOverTLS(t *testing.T) {
	inner := ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))
	var plain atomic.Bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		plain.Store(plain.Load() || req.TLS == nil)
		if _, password, _ := req.BasicAuth(); password != "secret" {
			// The token server answers 401, too: the password remains.
			w.Header().Set("WWW-Authenticate", `Negotiate, Bearer realm="https://`+req.Host+`/token", Basic realm="r"`)
			if req.URL.Path == "/token" {
				w.Header().Del("WWW-Authenticate")
			}
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if req.URL.Path == "/token" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, req)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "https://")
	auth := filepath.Join(t.TempDir(), "auth.json")
	if err := os.WriteFile(auth, fmt.Appendf(nil, `{"auths":{%q:{"username":"op","password":"secret"}}}`, host), 0o600); err != nil {
		t.Fatal(err)
	}
	o := registry.Options{CAs: []string{string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))}, AuthFile: auth}
	r, err := registry.Open(host+"/metal-a", o)
	if err != nil {
		t.Fatal(err)
	}
	digest := push(t, r, "one", "superhost")
	if raw, _, err := r.Manifest(t.Context(), "node", "superhost"); err != nil || oci.Digest(raw) != digest {
		t.Errorf("Manifest = %v", err)
	}
	if plain.Load() {
		t.Error("something went without TLS")
	}

	o.AuthFile = ""
	if r, err = registry.Open(host+"/metal-a", o); err != nil {
		t.Fatal(err)
	}
	d := oci.Describe("text/plain", []byte("x"))
	var status *pull.StatusError
	if err := r.PutData(t.Context(), "node", d); !errors.As(err, &status) || status.Hint() == "" {
		t.Errorf("a push without credentials: %v, want a hint", err)
	}
}

// TestNoPlainHTTPByItself asks a server without TLS for a push without saying so.
func TestNoPlainHTTPByItself(t *testing.T) {
	var asked atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked.Store(true) }))
	defer server.Close()
	r, err := registry.Open(strings.TrimPrefix(server.URL, "http://")+"/metal-a", registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := oci.Describe("text/plain", []byte("x"))
	if err := r.PutData(t.Context(), "node", d); err == nil || asked.Load() {
		t.Errorf("a push went to a server without TLS: %v", err)
	}
}

// TestServerThatIsDown gives an error that names it, and soon.
func TestServerThatIsDown(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	r, err := registry.Open(host+"/metal-a", registry.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Manifest(t.Context(), "node", "superhost"); err == nil || !strings.Contains(err.Error(), host) {
		t.Errorf("Manifest = %v, want the host in it", err)
	}
}

// TestPushWithTokens pushes where each repository and each kind of access wants a
// token of its own, and tokens last for a few requests only.
func TestPushWithTokens(t *testing.T) {
	inner := ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))
	var uses atomic.Int32
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/token" {
			if _, password, _ := req.BasicAuth(); password != "secret" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			fmt.Fprintf(w, `{"token":"%d-%s."}`, uses.Load(), req.FormValue("scope"))
			return
		}
		scope := ""
		if repo, ok := strings.CutPrefix(req.URL.Path, "/v2/metal-a/node/"); ok && repo != "" {
			scope = "repository:metal-a/node:pull,push"
			if req.Method == http.MethodGet || req.Method == http.MethodHead {
				scope = "repository:metal-a/node:pull"
			}
		}
		now := uses.Load()
		if got := req.Header.Get("Authorization"); got != fmt.Sprintf("Bearer %d-%s.", now, scope) {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="r"`, server.URL+"/token"))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if req.Method == http.MethodPut {
			uses.Add(1) // from now on older tokens are not good
		}
		inner.ServeHTTP(w, req)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	auth := filepath.Join(t.TempDir(), "auth.json")
	if err := os.WriteFile(auth, fmt.Appendf(nil, `{"auths":{%q:{"username":"op","password":"secret"}}}`, host), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := registry.Open(host+"/metal-a", registry.Options{PlainHTTP: true, AuthFile: auth})
	if err != nil {
		t.Fatal(err)
	}
	digest := push(t, r, "one", "superhost", "other")
	if raw, _, err := r.Manifest(t.Context(), "node", "superhost"); err != nil || oci.Digest(raw) != digest {
		t.Errorf("Manifest = %v", err)
	}
	if err := r.Delete(t.Context(), "node", "other"); err != nil {
		t.Errorf("Delete = %v", err)
	}
}

// TestTagsAreTags: a registry may list what it likes. What is not a tag reaches no
// terminal and no shell.
func TestTagsAreTags(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"name":"metal-a/node","tags":["alpha","\u001b[2J","../x","$(id)","a b",""]}`)
	}))
	defer server.Close()
	r, err := registry.Open(strings.TrimPrefix(server.URL, "http://")+"/metal-a", registry.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	if tags, err := r.Tags(t.Context(), "node"); err != nil || len(tags) != 1 || tags[0] != "alpha" {
		t.Errorf("Tags = %q, %v", tags, err)
	}
}

// TestEndlessTags: a list of tags has an end, whatever a registry sends.
func TestEndlessTags(t *testing.T) {
	for name, row := range map[string]struct {
		want   string // of the error: by which cap
		answer http.HandlerFunc
	}{
		"one page": {"a page of a list of tags has more than 2097152 bytes", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"tags":["a"`)
			for range 4 << 10 { // 4 MiB
				if _, err := fmt.Fprint(w, strings.Repeat(`,"aaaaaaaaaaaa"`, 64)); err != nil {
					return
				}
			}
		}},
		"many pages": {"20020 in 20 pages", func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Link", `<`+req.URL.Path+`?last=a>; rel="next"`)
			fmt.Fprint(w, `{"tags":[`+strings.Repeat(`"aaaaaaaaaaaa",`, 1000)+`"a"]}`)
		}},
		"empty pages": {"0 in 502 pages", func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Link", `<`+req.URL.Path+`?last=a>; rel="next"`)
			fmt.Fprint(w, `{"tags":[]}`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var answers sync.WaitGroup
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if strings.HasSuffix(req.URL.Path, "/tags/list") {
					answers.Add(1)
					defer answers.Done()
					row.answer(w, req)
				}
			}))
			defer server.Close()
			r, err := registry.Open(strings.TrimPrefix(server.URL, "http://")+"/metal-a", registry.Options{PlainHTTP: true, Patience: 24 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if tags, pages, page := r.ListCaps(); tags < 400_000 || pages < 400_000/100 || page < 400_000*129 {
				t.Errorf("a list may have %d tags in %d pages of %d bytes; a large fleet has 400,000 of up to 128 bytes, and a page may have a hundred", tags, pages, page)
			}
			r.CapLists(20_000, 500, 2<<20)
			if _, err := r.Tags(t.Context(), "node"); refusal.Of(err) != refusal.Oversize || !strings.Contains(err.Error(), row.want) {
				t.Errorf("Tags: %v, want %q", err, row.want)
			}
			answers.Wait() // for ever, where a connection stays open on which nobody reads
		})
	}
}

// TestTrickledLists: what the library reads has a deadline, too.
func TestTrickledLists(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet || req.URL.Path == "/v2/" {
			return
		}
		w.Header().Set("Content-Type", oci.MediaTypeIndex)
		for req.Context().Err() == nil {
			fmt.Fprint(w, " ")
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	}))
	defer server.Close()
	r, err := registry.Open(strings.TrimPrefix(server.URL, "http://")+"/metal-a", registry.Options{PlainHTTP: true, Patience: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func(context.Context) error{
		"tags":      func(ctx context.Context) error { _, err := r.Tags(ctx, "node"); return err },
		"referrers": func(ctx context.Context) error { _, err := r.Referrers(ctx, "layer", oci.Digest(nil)); return err },
		"manifest":  func(ctx context.Context) error { _, _, err := r.Manifest(ctx, "node", "alpha"); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		if err := ask(ctx); err == nil || ctx.Err() != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}
