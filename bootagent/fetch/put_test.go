// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// TestPut puts reports into a registry that asks for a login, over TLS by the site's
// authority, with the credentials that are for that.
func TestPut(t *testing.T) {
	require.Root(t)
	addr, ca := registrytest.Private(t)
	pem, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	b := spec.Bootstrap{Registry: "registry.example/metal", CAs: []string{string(pem)}, PlainHTTP: true} // which is another place: TLS stays
	put := func(text string) error {
		return Post(t.Context(), b, track.Way{Credentials: dir, Silence: 20 * time.Second, Agent: "caisson-agent/1", Clock: trust.Clock{RTC: time.Now()}},
			post.Letter{Put: &post.Place{Registry: addr + "/reports", Node: "n1"}, Body: []byte(text)})
	}
	login := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, addr, base64.StdEncoding.EncodeToString([]byte(registrytest.User+":"+registrytest.Password)))
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(login), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("auth.json") // with which it reads
	if err := put("one"); err == nil || errors.Is(err, post.ErrRefused) {
		t.Errorf("with the credentials for reading, or none: %v", err)
	}
	write(track.ReportAuth)
	for _, text := range []string{"one", "two", "two"} {
		if err := put(text); err != nil {
			t.Fatal(err)
		}
	}
	ref, err := oci.ParseRef(addr + "/reports")
	if err != nil {
		t.Fatal(err)
	}
	src, err := pull.Open(ref, pull.Options{CAs: b.CAs, AuthFile: filepath.Join(dir, track.ReportAuth)})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := src.Manifest(t.Context(), oci.RepoReport, "n1", "")
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := oci.ReadDocument(t.Context(), src, resp, oci.Artifact{Repo: oci.RepoReport, Type: oci.TypeReport, Limit: sign.MaxReport}); err != nil || string(got) != "two" {
		t.Errorf("%q %v", got, err)
	}
}

// TestPutStays: a registry leads no report, and no credential, to another place.
func TestPutStays(t *testing.T) {
	require.Root(t)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		t.Errorf("asked elsewhere: %s %s", req.Method, req.URL)
	}))
	defer elsewhere.Close()
	for _, status := range []int{http.StatusAccepted, http.StatusTemporaryRedirect} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodHead {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.Header().Set("Location", elsewhere.URL+"/upload")
			w.WriteHeader(status)
		}))
		defer server.Close()
		addr := strings.TrimPrefix(server.URL, "http://")
		err := Post(t.Context(), spec.Bootstrap{Registry: addr + "/metal", PlainHTTP: true}, track.Way{Silence: 20 * time.Second, Clock: trust.Clock{RTC: time.Now()}},
			post.Letter{Put: &post.Place{Registry: addr + "/reports", Node: "n1"}, Body: []byte("x")})
		if err == nil || !strings.Contains(err.Error(), "report") {
			t.Errorf("%d: %v", status, err)
		}
	}
}
