// SPDX-License-Identifier: Apache-2.0

// Package registrytest starts real registries on 127.0.0.1 for tests. Only tests
// import it.
package registrytest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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
	"regexp"
	"strings"
	"testing"
	"time"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"golang.org/x/crypto/bcrypt"

	"github.com/caisson-os/caisson/test/require"
)

// Distribution runs Debian's docker-registry, the CNCF distribution. It has
// no referrers API.
func Distribution(t testing.TB) string {
	t.Helper()
	addr, _ := run(t, "")
	return addr
}

// Measured is [Distribution] with the id of its process, whose cost somebody measures.
func Measured(t testing.TB) (addr string, pid int) {
	t.Helper()
	return run(t, "")
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
	addr, _ = run(t, fmt.Sprintf(", tls: {certificate: %q, key: %q}}\nauth: {htpasswd: {realm: registry, path: %q}", ca, key, users))
	return addr, ca
}

// Certificate writes a certificate for 127.0.0.1 and more addresses, and its key.
func Certificate(t testing.TB, dir string, more ...net.IP) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: append([]net.IP{net.IPv4(127, 0, 0, 1)}, more...), IsCA: true, BasicConstraintsValid: true}
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

// run starts docker-registry with more settings of http and waits until it listens. The
// kernel gives it a port, which it says: one that was only asked for may be another's by
// the time that it is used.
func run(t testing.TB, more string) (addr string, pid int) {
	t.Helper()
	require.Tool(t, "docker-registry")
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: info, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: %s/data}, delete: {enabled: true}}\nhttp: {addr: \"127.0.0.1:0\"%s}\n", dir, more)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("docker-registry", "serve", config)
	out := &listening{at: make(chan string, 1)}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed, or has said why it ended
		close(ended)
	}()
	stop := func() {
		_ = cmd.Process.Kill() // it may have gone by itself
		<-ended
	}
	t.Cleanup(stop)
	select {
	case addr := <-out.at:
		return addr, cmd.Process.Pid
	case <-ended:
	case <-time.After(5 * time.Minute):
		stop()
	}
	t.Fatalf("docker-registry does not listen: %s", out.head)
	return "", 0
}

// listening takes what docker-registry says, and finds where it listens.
type listening struct {
	at   chan string
	head []byte // until it listens
	said bool
}

var address = regexp.MustCompile(`listening on (127\.0\.0\.1:\d+)`)

func (l *listening) Write(p []byte) (int, error) {
	if l.said {
		return len(p), nil
	}
	l.head = append(l.head, p...)
	// Its number is whole when something follows.
	if found := address.FindSubmatchIndex(l.head); found != nil && found[1] < len(l.head) {
		l.said = true
		l.at <- string(l.head[found[2]:found[3]])
	}
	return len(p), nil
}

// WithReferrers runs a registry in memory that has the referrers API.
func WithReferrers(t testing.TB) string {
	t.Helper()
	server := httptest.NewServer(whole(ggcr.New(ggcr.WithReferrersSupport(true), ggcr.Logger(log.New(io.Discard, "", 0)))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// whole passes on requests whose bodies came whole. The registry in memory keeps what came of
// a manifest when its client was cut off, under the tag; registries that are used refuse it.
func whole(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}
