// SPDX-License-Identifier: Apache-2.0

package track

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

// TestOpenUsesTheFolderOfCredentials asks a registry that wants a password, from a
// machine whose clock says 1970.
func TestOpenUsesTheFolderOfCredentials(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, password, _ := req.BasicAuth(); password != "secret" {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "https://")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	b := spec.Bootstrap{Registry: host + "/metal-a", CAs: []string{string(ca)}}
	clock := trust.Clock{RTC: time.Unix(0, 0), Build: server.Certificate().NotBefore.Add(-time.Hour)} // issued after the agent was built
	dir := t.TempDir()
	for i, want := range []string{"no credentials", "not found"} {
		src, err := Open(b, Way{Credentials: dir, Clock: clock, Silence: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := src.Manifest(t.Context(), oci.RepoNode, "superhost", ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("attempt %d: %v, want %q", i+1, err, want)
		}
		if err := os.WriteFile(filepath.Join(dir, authFile), fmt.Appendf(nil, `{"auths":{%q:{"username":"n","password":"secret"}}}`, host), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clock.Build = server.Certificate().NotAfter.Add(time.Hour)
	src, err := Open(b, Way{Credentials: dir, Clock: clock, Silence: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var invalid x509.CertificateInvalidError
	if _, err := src.Manifest(t.Context(), oci.RepoNode, "superhost", ""); !errors.As(err, &invalid) {
		t.Errorf("a certificate that ended before the agent was built: %v", err)
	}
}

func TestUserAgent(t *testing.T) {
	macs := []string{"52:54:00:12:34:56"}
	for want, id := range map[string]trust.Identity{
		"caisson-agent/1.0 (node n1)":               {Node: "n1", MACs: macs},
		"caisson-agent/1.0 (mac 52:54:00:12:34:56)": {MACs: macs},
		"caisson-agent/1.0":                         {Node: "n1\r\nX: y"},
	} {
		if got := UserAgent("1.0", id); got != want {
			t.Errorf("UserAgent(%+v) = %q, want %q", id, got, want)
		}
	}
}
