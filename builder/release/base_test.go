// SPDX-License-Identifier: Apache-2.0

package release

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestBaseImagesKeepTLS: a server without TLS on a private address is not spoken to,
// and its credentials are not looked for.
func TestBaseImagesKeepTLS(t *testing.T) {
	var asked atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Store(true) }))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	helper := "#!/bin/sh\ntouch " + ran + "\necho '{\"Username\":\"u\",\"Secret\":\"s\"}'\n"
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-evil"), []byte(helper), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"credsStore":"evil","credHelpers":{"`+host+`":"evil"},"auths":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("DOCKER_CONFIG", dir)
	_, err := OpenBase("amd64")(t.Context(), host+"/debian@sha256:"+strings.Repeat("0", 64))
	if err == nil {
		t.Error("an image came from nowhere")
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the helper was run")
	}
	if asked.Load() {
		t.Error("a server without TLS was asked")
	}
}
