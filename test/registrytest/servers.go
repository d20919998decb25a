// SPDX-License-Identifier: Apache-2.0

// Package registrytest starts real registries on 127.0.0.1 for tests. Only tests
// import it.
package registrytest

import (
	"fmt"
	"io"
	"log"
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

	"github.com/caisson-os/caisson/internal/require"
)

// Distribution runs Debian's docker-registry, the CNCF distribution. It has
// no referrers API.
func Distribution(t testing.TB) string {
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
	text := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s/data}, delete: {enabled: true}}\nhttp: {addr: %q}\n", dir, addr)
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
		if resp, err := http.Get("http://" + addr + "/v2/"); err == nil {
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
