// SPDX-License-Identifier: Apache-2.0

// Package registrytest starts real registries on 127.0.0.1 for tests. Only tests
// import it.
package registrytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"golang.org/x/crypto/bcrypt"

	"github.com/caisson-os/caisson/internal/require"
)

// Distribution runs Debian's docker-registry, the CNCF distribution. It has
// no referrers API.
func Distribution(t testing.TB) string {
	t.Helper()
	return run(t, http.DefaultClient, "http", "")
}

// User and Password are those that a [Private] registry knows.
const (
	User     = "ci"
	Password = "secret of the pipeline"
)

// Private runs Debian's docker-registry with TLS and a login. It returns the address
// and the file with the certificate to trust.
func Private(t testing.TB) (addr, ca string) {
	t.Helper()
	dir := t.TempDir()
	hash, err := bcrypt.GenerateFromPassword([]byte(Password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	users := filepath.Join(dir, "htpasswd")
	if err := os.WriteFile(users, fmt.Appendf(nil, "%s:%s\n", User, hash), 0o600); err != nil {
		t.Fatal(err)
	}
	ca, key := Certificate(t, dir)
	pool := x509.NewCertPool()
	if pem, err := os.ReadFile(ca); err != nil || !pool.AppendCertsFromPEM(pem) {
		t.Fatalf("%v: no certificate in %s", err, ca)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	return run(t, client, "https", fmt.Sprintf(", tls: {certificate: %q, key: %q}}\nauth: {htpasswd: {realm: registry, path: %q}", ca, key, users)), ca
}

// Certificate writes a certificate for 127.0.0.1 and its key.
func Certificate(t testing.TB, dir string) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, text, text, secret.Public(), secret)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: raw}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// run starts docker-registry with more settings of http and waits until it answers.
func run(t testing.TB, client *http.Client, scheme, more string) string {
	t.Helper()
	require.Tool(t, "docker-registry")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close() // it was only asked for a number
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s/data}, delete: {enabled: true}}\nhttp: {addr: %q%s}\n", dir, addr, more)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("docker-registry", "serve", config)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have gone by itself
		_ = cmd.Wait()         // it may have gone by itself
	})
	for range 200 {
		if resp, err := client.Get(scheme + "://" + addr + "/v2/"); err == nil {
			resp.Body.Close()
			return addr
		}
		time.Sleep(50 * time.Millisecond)
	}
	_ = cmd.Process.Kill() // it may have gone by itself
	_ = cmd.Wait()         // it may have gone by itself
	t.Fatalf("docker-registry does not answer on %s: %s", addr, &out)
	return ""
}

// WithReferrers runs a registry in memory that has the referrers API.
func WithReferrers(t testing.TB) string {
	t.Helper()
	server := httptest.NewServer(ggcr.New(ggcr.WithReferrersSupport(true), ggcr.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
