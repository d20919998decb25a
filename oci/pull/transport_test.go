// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

var sample = oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeOverlay,
	Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty), Layers: []oci.Descriptor{}})

// good answers every request for a manifest.
func good(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", oci.MediaTypeManifest)
	w.Header().Set("ETag", `"`+oci.Digest(sample)+`"`)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(sample))
}

func pemOf(cert *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
}

func ask(t *testing.T, server string, o Options) (oci.Response, error) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	o.PlainHTTP = u.Scheme == "http"
	s, err := Open(oci.Ref{Host: u.Host, Prefix: "metal-a"}, o)
	if err != nil {
		return oci.Response{}, err
	}
	return s.Manifest(t.Context(), oci.RepoNode, "superhost", "")
}

func TestTLSBelievesOnlyWhomItIsTold(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(good))
	defer server.Close()
	if _, err := ask(t, server.URL, Options{CAs: []string{pemOf(server.Certificate())}}); err != nil {
		t.Errorf("with its authority: %v", err)
	}
	var unknown x509.UnknownAuthorityError
	if _, err := ask(t, server.URL, Options{}); !errors.As(err, &unknown) {
		t.Errorf("with the system's authorities: %v", err)
	}
	_, stranger := certificate(t, x509.ExtKeyUsageServerAuth)
	if _, err := ask(t, server.URL, Options{CAs: []string{stranger}}); !errors.As(err, &unknown) {
		t.Errorf("with another authority: %v", err)
	}
	if _, err := ask(t, server.URL, Options{CAs: []string{"no PEM"}}); err == nil {
		t.Error("an authority that is not PEM was taken")
	}
}

func TestARegistryWithoutTLS(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(good))
	defer server.Close()
	_, err := ask(t, "https"+strings.TrimPrefix(server.URL, "http"), Options{})
	if !errors.Is(err, http.ErrSchemeMismatch) || !strings.Contains(err.Error(), "--registry-plain-http") {
		t.Errorf("a registry that speaks HTTP: %v", err)
	}
	var mend interface{ Hint() string }
	if !errors.As(err, &mend) || !strings.Contains(mend.Hint(), "--plain-http") {
		t.Errorf("without a hint: %v", err)
	}
}

func TestTLSUsesTheGivenClock(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(good))
	defer server.Close()
	late := func() time.Time { return server.Certificate().NotAfter.Add(time.Hour) }
	var invalid x509.CertificateInvalidError
	if _, err := ask(t, server.URL, Options{CAs: []string{pemOf(server.Certificate())}, Now: late}); !errors.As(err, &invalid) {
		t.Errorf("after the certificate's end: %v", err)
	}
}

// TestWithoutAClock: a certificate may begin later than the machine thinks it is;
// all else is as with a clock.
func TestWithoutAClock(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(good))
	defer server.Close()
	cert := server.Certificate()
	ca := []string{pemOf(cert)}
	at := func(when time.Time) func() time.Time { return func() time.Time { return when } }
	early, late := at(cert.NotBefore.Add(-time.Hour)), at(cert.NotAfter.Add(time.Hour))
	_, stranger := certificate(t, x509.ExtKeyUsageServerAuth)
	byName := strings.Replace(server.URL, "127.0.0.1", "localhost", 1) // which the certificate does not name
	for _, c := range []struct {
		what, url string
		o         Options
		good      bool
	}{
		{"early with a clock", server.URL, Options{CAs: ca, Now: early}, false},
		{"early without", server.URL, Options{CAs: ca, Now: early, AtLeast: true}, true},
		{"late without", server.URL, Options{CAs: ca, Now: late, AtLeast: true}, false},
		{"another authority", server.URL, Options{CAs: []string{stranger}, Now: early, AtLeast: true}, false},
		{"the system's authorities", server.URL, Options{Now: early, AtLeast: true}, false},
		{"another name", byName, Options{CAs: ca, Now: early, AtLeast: true}, false},
	} {
		if _, err := ask(t, c.url, c.o); (err == nil) != c.good {
			t.Errorf("%s: %v, want good: %v", c.what, err, c.good)
		}
	}
	// An address that the certificate does not name, behind an empty server name.
	u, _ := url.Parse(server.URL)
	through := func(o Options) error {
		transport, err := o.Transport("127.0.0.2:" + u.Port())
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: transport}).Get("https://127.0.0.2:" + u.Port())
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	other := httptest.NewUnstartedServer(http.HandlerFunc(good))
	l, err := net.Listen("tcp", "127.0.0.2:"+u.Port())
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	other.Listener = l
	other.StartTLS()
	defer other.Close()
	var name x509.HostnameError
	if err := through(Options{CAs: ca, Now: early, AtLeast: true}); !errors.As(err, &name) {
		t.Errorf("an address that the certificate does not name: %v", err)
	}
}

func TestMutualTLS(t *testing.T) {
	pair, ca := certificate(t, x509.ExtKeyUsageClientAuth)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(ca))
	server := httptest.NewUnstartedServer(http.HandlerFunc(good))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	server.StartTLS()
	defer server.Close()
	o := Options{CAs: []string{pemOf(server.Certificate())}}
	if _, err := ask(t, server.URL, o); err == nil {
		t.Error("without a certificate the registry answered")
	}
	o.CertFile, o.KeyFile = pair, strings.TrimSuffix(pair, ".crt")+".key"
	if _, err := ask(t, server.URL, o); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := os.Chmod(o.KeyFile, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, server.URL, o); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("with a key that all can read: %v", err)
	}
}

// certificate writes a self-signed pair and returns the file name and the PEM.
func certificate(t *testing.T, usage x509.ExtKeyUsage) (file, text string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{usage}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "node.crt")
	text = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	for name, data := range map[string]string{file: text, strings.TrimSuffix(file, ".crt") + ".key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file, text
}

// authFile writes credentials for a server.
func authFile(t *testing.T, server, entry string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "auth.json")
	if err := os.WriteFile(name, fmt.Appendf(nil, `{"auths":{%q:%s}}`, u.Host, entry), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

var basicEntry = `{"auth":"` + base64.StdEncoding.EncodeToString([]byte("node:secret")) + `"}`

func TestBasicAuth(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if user, password, _ := req.BasicAuth(); user != "node" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		good(w, req)
	}))
	defer server.Close()
	if _, err := ask(t, server.URL, Options{AuthFile: authFile(t, server.URL, basicEntry)}); err != nil {
		t.Errorf("with credentials: %v", err)
	}
	for what, name := range map[string]string{"none": "", "another host's": authFile(t, "http://other:1", basicEntry), "wrong ones": authFile(t, server.URL, `{"username":"node","password":"x"}`)} {
		var status *StatusError
		if _, err := ask(t, server.URL, Options{AuthFile: name}); !errors.As(err, &status) || status.Status != http.StatusUnauthorized || status.Hint() == "" {
			t.Errorf("with %s: %v", what, err)
		}
	}
	open := authFile(t, server.URL, basicEntry)
	if err := os.Chmod(open, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, server.URL, Options{AuthFile: open}); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("credentials that others can read: %v", err)
	}
}

// TestTokens goes through the bearer dance: three requests for the first
// manifest, one for the next, a new token when the old one has expired.
func TestTokens(t *testing.T) {
	var requests, tokens atomic.Int32
	realm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		requests.Add(1)
		_, password, _ := req.BasicAuth()
		if refresh := req.PostFormValue("refresh_token"); password != "secret" && refresh != "identity" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if got := req.FormValue("scope") + " " + req.FormValue("service"); got != "repository:metal-a/node:pull registry" {
			t.Errorf("asked for %q", got)
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"token": fmt.Sprint("t", tokens.Add(1))}) // the client reports what is missing
	}))
	defer realm.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		requests.Add(1)
		if want := fmt.Sprint("Bearer t", tokens.Load()); tokens.Load() == 0 || req.Header.Get("Authorization") != want {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="registry",scope="repository:metal-a/node:pull"`, realm.URL+"/token"))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		good(w, req)
	}))
	defer server.Close()
	for what, entry := range map[string]string{"password": basicEntry, "identity token": `{"identitytoken":"identity"}`} {
		t.Run(what, func(t *testing.T) {
			tokens.Store(0)
			requests.Store(0)
			u, _ := url.Parse(server.URL)
			s, err := Open(oci.Ref{Host: u.Host, Prefix: "metal-a"}, Options{PlainHTTP: true, AuthFile: authFile(t, server.URL, entry)})
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []int32{3, 4, 7} {
				if i == 2 {
					tokens.Add(1) // the registry no longer knows the old one
				}
				if _, err := s.Manifest(t.Context(), oci.RepoNode, "superhost", ""); err != nil {
					t.Fatal(err)
				}
				if got := requests.Load(); got != want {
					t.Errorf("%d requests after %d manifests, want %d", got, i+1, want)
				}
			}
		})
	}
	if _, err := ask(t, server.URL, Options{AuthFile: authFile(t, server.URL, `{"auth":"bm9kZTp4"}`)}); err == nil {
		t.Error("a token without credentials")
	}
}

// TestCredentialsStay: a registry with TLS cannot ask for them over plain HTTP.
func TestCredentialsStay(t *testing.T) {
	realm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { t.Error("the realm was asked") }))
	defer realm.Close()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q`, realm.URL))
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	_, err := ask(t, server.URL, Options{CAs: []string{pemOf(server.Certificate())}, AuthFile: authFile(t, server.URL, basicEntry)})
	if err == nil || !strings.Contains(err.Error(), "credentials stay here") {
		t.Errorf("with a realm without TLS: %v", err)
	}
}

func TestRedirects(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(good))
	defer plain.Close()
	down := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, plain.URL+req.URL.Path, http.StatusFound)
	}))
	defer down.Close()
	if _, err := ask(t, down.URL, Options{CAs: []string{pemOf(down.Certificate())}}); refusal.Of(err) != refusal.Redirect {
		t.Errorf("a redirect away from TLS: %v", err)
	}
	loop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, req.URL.Path, http.StatusFound)
	}))
	defer loop.Close()
	if _, err := ask(t, loop.URL, Options{}); err == nil || !strings.Contains(err.Error(), "more than 5 redirects") {
		t.Errorf("an endless redirect: %v", err)
	}
	var leaked atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		leaked.Store(req.Header.Get("Authorization") != "")
		good(w, req)
	}))
	defer other.Close()
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, _, ok := req.BasicAuth(); !ok {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Redirect(w, req, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+req.URL.Path, http.StatusFound)
	}))
	defer away.Close()
	if _, err := ask(t, away.URL, Options{AuthFile: authFile(t, away.URL, basicEntry)}); err != nil || leaked.Load() {
		t.Errorf("a redirect to another host: %v; credentials went along: %v", err, leaked.Load())
	}
}

func TestStatus(t *testing.T) {
	for status, check := range map[int]func(error) bool{
		http.StatusNotFound: func(err error) bool { return errors.Is(err, oci.ErrNotFound) },
		http.StatusInternalServerError: func(err error) bool {
			var s *StatusError
			return errors.As(err, &s) && !errors.Is(err, oci.ErrNotFound)
		},
		http.StatusTooManyRequests: func(err error) bool { var s *StatusError; return errors.As(err, &s) && s.Hint() != "" },
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, strings.Repeat("long ", 1000))
		}))
		_, err := ask(t, server.URL, Options{})
		if !check(err) || refusal.Of(err) != "" || len(err.Error()) > 500 {
			t.Errorf("status %d: %v", status, err)
		}
		server.Close()
	}
}

func TestMirrors(t *testing.T) {
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	defer down.Close()
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }))
	defer liar.Close()
	var asked atomic.Int32
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { asked.Add(1); good(w, req) }))
	defer up.Close()
	host := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") + "/metal-a" }

	if _, err := ask(t, down.URL, Options{Mirrors: []string{host(liar), host(up)}}); err != nil {
		t.Errorf("the third place is good: %v", err)
	}
	asked.Store(0)
	if _, err := ask(t, up.URL, Options{Mirrors: []string{host(up), host(up)}}); err != nil || asked.Load() != 1 {
		t.Errorf("the first place is good: %v, %d requests", err, asked.Load())
	}
	_, err := ask(t, down.URL, Options{Mirrors: []string{host(liar)}})
	if err == nil || refusal.Of(err) != refusal.MediaType || !strings.Contains(err.Error(), "502") {
		t.Errorf("none is good: %v; want to hear of both", err)
	}
	if _, err := ask(t, down.URL, Options{Mirrors: []string{"not a reference"}}); err == nil {
		t.Error("a mirror that is not a reference was taken")
	}
}

func TestProxy(t *testing.T) {
	var through atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		through.Store(req.URL.Host)
		good(w, req)
	}))
	defer proxy.Close()
	if _, err := ask(t, "http://registry.example.org:5000", Options{Proxy: proxy.URL}); err != nil || through.Load() != "registry.example.org:5000" {
		t.Errorf("through the proxy: %v, %v", through.Load(), err)
	}
	if _, err := ask(t, "http://registry.example.org:5000", Options{Proxy: "not a URL"}); err == nil {
		t.Error("a proxy that is not a URL was taken")
	}
}

// TestSilence ends a request whose answer stops in the middle.
func TestSilence(t *testing.T) {
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", oci.MediaTypeManifest)
		io.WriteString(w, "{")
		w.(http.Flusher).Flush()
		<-stop
	}))
	defer server.Close()
	defer close(stop)
	if _, err := ask(t, server.URL, Options{Timeout: 200 * time.Millisecond}); !errors.Is(err, errSilence) {
		t.Errorf("a registry that stops talking: %v", err)
	}
}

func TestConditional(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(good))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	s, err := Open(oci.Ref{Host: u.Host}, Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Manifest(t.Context(), oci.RepoNode, "superhost", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, etag := range []string{first.ETag, first.Digest} {
		if r, err := s.Manifest(t.Context(), oci.RepoNode, "superhost", etag); err != nil || !r.NotModified || r.Data != nil {
			t.Errorf("with etag %s: %+v, %v", etag, r, err)
		}
	}
	if r, err := s.Manifest(t.Context(), oci.RepoNode, "superhost", oci.Digest(nil)); err != nil || r.NotModified {
		t.Errorf("with another etag: %+v, %v", r, err)
	}
}
