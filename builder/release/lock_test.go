// SPDX-License-Identifier: Apache-2.0

package release

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/spec/site"
)

// Locked packages are taken over as they are, and only the others are resolved.
func TestLockMissing(t *testing.T) {
	const text = "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nlayer: {base: {tar: none.tar}, kernel: {package: linux-image-amd64}}\n" +
		"nodes: [{name: a}, {name: b}]\nconf: {overrides: {divingbell_apt: {hosts: [{name: b, conf: {apt: {packages: [{name: jq}]}}}]}}}\n"
	s, r := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	variants, err := s.Variants()
	if err != nil || len(variants) != 2 {
		t.Fatalf("%d variants, %v", len(variants), err)
	}
	old := &packages.LockFile{Variants: map[string]packages.Lock{variants[0].Name: {Recipe: "sha256:1"}, variants[1].Name: {Recipe: "sha256:2"}}}
	how := Locking{Cache: t.TempDir(), Missing: true}
	fresh, changes, err := Lock(t.Context(), s, old, how)
	if err != nil || len(changes) > 0 || !reflect.DeepEqual(fresh.Variants, old.Variants) {
		t.Errorf("%+v, %+v, %v", fresh, changes, err)
	}
	delete(old.Variants, variants[1].Name)
	if _, _, err := Lock(t.Context(), s, old, how); err == nil || !strings.Contains(err.Error(), "variant "+variants[1].Name) {
		t.Errorf("what is not locked is not resolved: %v", err)
	}
}

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
