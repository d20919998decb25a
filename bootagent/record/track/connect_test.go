// SPDX-License-Identifier: Apache-2.0

package track

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
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

// Credentials that came as a secret are tried first; where the registry refuses them, or they
// cannot be read, those that the node was installed with are. Nobody is asked twice who does not
// answer, and no password goes where another was taken.
func TestOwnCredentialsComeFirst(t *testing.T) {
	var mu sync.Mutex // the server answers beside the test
	var good, seen []string
	asked := 0
	locked := func(do func()) {
		mu.Lock()
		defer mu.Unlock()
		do()
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, password, _ := req.BasicAuth()
		mu.Lock()
		defer mu.Unlock()
		switch seen = append(seen, password); {
		case slices.Contains(good, "down"):
			asked++
			panic(http.ErrAbortHandler)
		case !slices.Contains(good, password):
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	installed, own := t.TempDir(), t.TempDir()
	write := func(dir, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, authFile), []byte(text), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	login := func(password string) string {
		return fmt.Sprintf(`{"auths":{%q:{"username":"n","password":%q}}}`, host, password)
	}
	write(installed, login("old"))
	for name, c := range map[string]struct {
		own  string
		good []string
		want string
		seen []string // after the registry has asked
	}{
		"both are good":     {login("new"), []string{"old", "new"}, "not found", []string{"new"}},
		"the secret alone":  {login("new"), []string{"new"}, "not found", []string{"new"}},
		"the installed one": {login("new"), []string{"old"}, "not found", []string{"new", "old"}},
		"neither":           {login("new"), nil, "by the credentials that came as a secret", []string{"new", "old"}},
		"of another host":   {`{"auths":{"elsewhere":{}}}`, []string{"old"}, "not found", []string{"old"}},
		"no credentials":    {"hunter2", []string{"old"}, "not found", []string{"old"}},
	} {
		if err := os.RemoveAll(filepath.Join(own, authFile)); err != nil {
			t.Fatal(err)
		}
		write(own, c.own)
		locked(func() { good, seen = c.good, nil })
		src, err := Open(spec.Bootstrap{Registry: host + "/metal-a", PlainHTTP: true}, Way{Credentials: installed, Own: own, Silence: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		_, err = src.Manifest(t.Context(), oci.RepoNode, "superhost", "")
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		var said []string
		locked(func() { said = slices.DeleteFunc(slices.Clone(seen), func(s string) bool { return s == "" }) })
		if !slices.Equal(said, c.seen) {
			t.Errorf("%s: the registry was shown %q, want %q", name, said, c.seen)
		}
	}
	locked(func() { good = []string{"down"} })
	src, err := Open(spec.Bootstrap{Registry: host + "/metal-a", PlainHTTP: true}, Way{Own: own, Silence: 20 * time.Second})
	if err == nil {
		_, err = src.Manifest(t.Context(), oci.RepoNode, "superhost", "")
	}
	once, then := 0, 0
	locked(func() { once, asked = asked, 0 })
	if err == nil {
		t.Error("a registry that is down answers")
	}
	src, err = Open(spec.Bootstrap{Registry: host + "/metal-a", PlainHTTP: true}, Way{Silence: 20 * time.Second})
	if err == nil {
		_, err = src.Manifest(t.Context(), oci.RepoNode, "superhost", "")
	}
	locked(func() { then = asked })
	if err == nil || then != once {
		t.Errorf("a registry that is down is asked %d times with a secret, %d without: %v", once, then, err)
	}
}

func TestOwnSecrets(t *testing.T) {
	both := &spec.Credentials{Registry: "pull", Report: "token"}
	for _, c := range []struct {
		agent *spec.Agent
		want  map[string]string
	}{
		{nil, nil}, {&spec.Agent{}, nil},
		{&spec.Agent{Credentials: &spec.Credentials{Registry: "pull"}}, map[string]string{"auth.json": "pull"}},
		{&spec.Agent{Credentials: both, Report: &spec.Reporting{URL: "https://f"}}, map[string]string{"auth.json": "pull", "report.token": "token"}},
		{&spec.Agent{Credentials: both, Report: &spec.Reporting{Registry: "r/x"}}, map[string]string{"auth.json": "pull", "report.json": "token"}},
	} {
		if got := OwnSecrets(&spec.Overlay{Agent: c.agent}); !maps.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.agent, got, c.want)
		}
	}
}
