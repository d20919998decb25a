// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/kube/test/kubetest"
	"github.com/caisson-os/caisson/test/registrytest"
)

// TestTenMinutes: the commands and documents of 'Ten minutes' in docs/kubernetes.md lead from an
// empty cluster to 'kubectl get fleetnodes'. Left out is 'make container': what the deployment
// would start, the test starts.
func TestTenMinutes(t *testing.T) {
	c := kubetest.Start(t)
	programs := t.TempDir()
	buildCaisson(t, programs)
	d := &desk{t, c, t.TempDir(), "metal-a", registrytest.WithReferrers(t) + "/metal-a", 2 * time.Minute}
	d.caisson("init", "metal-a")
	d.dir = filepath.Join(d.dir, "metal-a") // where the keys are
	put := func(name string, data []byte) {
		t.Helper()
		name = filepath.Join(d.dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	get := func(name string) []byte {
		t.Helper()
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	put("kubeconfig", c.Env.KubeConfig)
	cert, key := registrytest.Certificate(t, t.TempDir())
	put("tls.crt", get(cert))
	put("tls.key", get(key))

	page := string(get(filepath.Join("..", "..", "..", "docs", "kubernetes.md")))
	_, page, _ = strings.Cut(page, "\n## Ten minutes\n")
	page, _, found := strings.Cut(page, "\n## What differs from files\n")
	if !found {
		t.Fatal("the page has no section Ten minutes any more")
	}
	blocks := regexp.MustCompile("(?s)```(sh|yaml)\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(blocks) != 3 || blocks[0][1] != "sh" || blocks[1][1] != "yaml" || blocks[2][1] != "sh" {
		t.Fatalf("the page has other blocks: %q", blocks)
	}
	example, err := filepath.Abs(filepath.Join("..", "..", "deploy", "example"))
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	dry := "caisson publish --from-cluster --namespace metal-a --dry-run --new-fleet 2>&1 | sed -n 's/.*the plan is //p'"
	here := func(text string) string {
		for _, one := range [][2]string{
			{"make container ", "true "},
			{"registry.example.org:5000/metal-a", d.registry},
			{"--listen :8443", "--listen 127.0.0.1:" + port},
			{"--tls-key tls.key &", "--tls-key tls.key >served 2>&1 & echo $! >serve.pid"},
			{"-k kube/deploy/example", "-k " + example},
			{"--new-fleet ", "--new-fleet --plan \"$(" + dry + ")\" "}, // there is no terminal to ask on
		} {
			text = strings.ReplaceAll(text, one[0], one[1])
		}
		return text
	}
	run := func(script string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-e", "-x", "-c", script)
		cmd.Dir = d.dir
		cmd.Env = append(os.Environ(), "HOME="+d.dir, "KUBECONFIG="+filepath.Join(d.dir, "kubeconfig"), "PATH="+programs+":"+kubetest.Programs(t)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	t.Cleanup(func() {
		text, err := os.ReadFile(filepath.Join(d.dir, "serve.pid"))
		if err != nil {
			return // it was not started
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Error(err)
		}
	})
	run(here(blocks[0][2]))

	var secret struct{ Data map[string]string }
	out, err := c.Kubectl(t, "", "get", "secret", "metal-a", "--namespace", "caisson-system", "-o", "json")
	if err != nil || json.Unmarshal([]byte(out), &secret) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, place := range map[string]string{"operator.pub": "keys/operator.pub", "root.pub": "keys/root.pub", "caisson.keys": "caisson.keys", "token": "token"} { // as kube/deploy/example mounts them
		data, err := base64.StdEncoding.DecodeString(secret.Data[name])
		if err != nil || len(data) == 0 {
			t.Fatalf("the Secret has no %s: %v", name, err)
		}
		put("beside/metal-a/"+place, data)
	}
	put("beside/metal-a/service-ca.pem", get(cert))
	d.apply(here(blocks[1][2]))
	d.bridge("--fleet", "metal-a=https://127.0.0.1:"+port)
	d.status("nobody signs", publishedReason, is("NobodySigns"))
	if said := run(here(blocks[2][2])); !strings.Contains(said, "generation 1") {
		t.Errorf("nothing was published:\n%s", said)
	}
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Second) {
		out := run("kubectl get fleetnodes --namespace metal-a")
		if strings.Contains(out, "node-1") && strings.Contains(out, "node-2") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the nodes are not shown:\n%s\n%s", out, get(filepath.Join(d.dir, "served")))
		}
	}
}
