// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// visudo stands for that of a layer: it takes all but one word.
func visudo() {
	name := os.Args[len(os.Args)-1]
	if text, err := os.ReadFile(name); err != nil || strings.Contains(string(text), "NOPASWD") {
		fmt.Printf("%s:1: syntax error %v\n", name, err)
		os.Exit(1)
	}
}

// TestRolloutsAskReaders: what a program of the layer refuses is neither published, nor planned, nor
// given to a wave by a driver whose cache has the layer, whatever the one that planned it had.
func TestRolloutsAskReaders(t *testing.T) {
	require.Root(t)
	t.Chdir(t.TempDir())
	site := func(rule string) {
		text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal-a}\nregistry: oci:out\nlayer: {base: {debian: {suite: trixie}}}\n" +
			"trust: {keys: {operator: keys/operator.pub, release: keys/release.pub, attestation: keys/attestation.pub}}\nnodes: [{name: a, match: {macs: [\"52:54:00:12:34:56\"]}}]\n" +
			"conf: {files: {/etc/sudoers.d/ops: {content: \"" + rule + "\\n\"}}}\n---\napiVersion: caisson.dev/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {waves: [{hosts: [a], rest: true}]}\n"
		if err := os.WriteFile("site.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	caisson := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := newApp(&out, &out).root()
		root.SetArgs(args)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := caisson(args...)
		if err != nil {
			t.Fatalf("caisson %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	for _, name := range []string{"operator", "release", "attestation"} {
		must("keys", "generate", "-q", "keys/"+name)
	}
	site("ops ALL=(ALL) ALL")
	if err := shipLayers("site.yaml", "oci:out", "1", "keys/release.key"); err != nil {
		t.Fatal(err)
	}
	step := "cache/steps/base-1"
	base := []byte("base of 1, default") // see pretend
	made, err := json.Marshal(map[string]any{"image": spec.Image{Name: "base", MediaType: image.MediaType, Blob: spec.Blob{Digest: oci.Digest(base), Size: int64(len(base))}}})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"dev", "proc", "run", "sys", "tmp"} {
		if err := os.MkdirAll(filepath.Join(step, "tree", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string][]byte{"made.json": made, "tree/usr/sbin/visudo": program} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(step, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(step, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/summary" {
			_ = json.NewEncoder(w).Encode(map[string]string{"fleet": "metal-a"}) // the client is this test's
			return
		}
		_ = json.NewEncoder(w).Encode(report.Reported{Node: "a", Received: time.Now(), Axes: spec.Axes{Sync: spec.Axis{State: "current"}, Health: spec.Axis{State: "ok"}}})
	}))
	defer service.Close()
	run := []string{"rollout", "run", "r", "site.yaml", "--once", "--at", service.URL, "--unsigned-reports", "--cache"}
	const unasked = "nodes ask visudo, sshd and nft before they write"
	if out := must("publish", "site.yaml", "--cache", "cache"); strings.Contains(out, unasked) {
		t.Fatal(out)
	}
	site("ops ALL=(ALL) NOPASWD ALL")
	for _, args := range [][]string{{"publish", "site.yaml", "--cache", "cache"}, {"rollout", "start", "r", "site.yaml", "--cache", "cache"}} {
		if out, err := caisson(args...); err == nil || !strings.Contains(err.Error(), "site.yaml:8:") || !strings.Contains(err.Error(), "/usr/sbin/visudo does not take it") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	if out := must("rollout", "start", "r", "site.yaml", "--cache", "other"); !strings.Contains(out, unasked) {
		t.Fatal(out)
	}
	if out, err := caisson(append(run, "cache")...); err == nil || !strings.Contains(err.Error(), "/usr/sbin/visudo does not take it") {
		t.Errorf("the driver: %v\n%s", err, out)
	}
	if out := must("rollout", "status", "oci:out", "r", "--site", "site.yaml"); !strings.Contains(out, "waiting") {
		t.Errorf("after it: %s", out)
	}
	if out, err := caisson(append(run, "other")...); err != nil || !strings.Contains(out, unasked) || !strings.Contains(out, "begins with 1 node") {
		t.Errorf("a driver without the layer: %v\n%s", err, out)
	}
}
