// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/caisson-os/caisson/kube/object"
	"github.com/caisson-os/caisson/kube/test/kubetest"
	"github.com/caisson-os/caisson/test/require"
)

// requests are those that a process has sent to its API server.
func requests(t *testing.T, metrics string) (n float64) {
	t.Helper()
	resp, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // only read
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "rest_client_requests_total{") {
			_, value, _ := strings.Cut(lines.Text(), "} ")
			one, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			n += one
		}
	}
	return n
}

// TestManyObjectsLong: a namespace of five thousand objects is looked at within the memory of
// the deployment, and then an instance asks less than once a second, webhook and all.
func TestManyObjectsLong(t *testing.T) {
	require.Long(t)
	c := kubetest.Start(t)
	for _, name := range []string{"metal-a", "caisson-system"} {
		c.Namespace(t, name)
	}
	if out, err := c.Kubectl(t, "", "apply", "--server-side", "-f", filepath.Join("..", "..", "deploy", "base", "webhook.yaml")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	port, metrics := freePort(t), "127.0.0.1:"+freePort(t)
	askAt(t, c, "https://127.0.0.1:"+port+"/validate")
	program, kubeconfig := filepath.Join(t.TempDir(), "caisson-kube"), filepath.Join(t.TempDir(), "kubeconfig")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(kubeconfig, c.Env.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl(t, strings.ReplaceAll(everyKind, "REGISTRY", "127.0.0.1:1/none"), "apply", "--server-side", "--namespace", "metal-a", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	fast := rest.CopyConfig(c.Env.Config)
	fast.QPS = -1
	admin := kubetest.Client(t, fast)
	const objects = 5000
	began := time.Now()
	var wg sync.WaitGroup
	for worker := range 10 {
		wg.Go(func() {
			for i := worker; i < objects; i += 10 {
				u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"match": map[string]any{"labels": map[string]any{"rack": fmt.Sprintf("r%d", i)}}}}}
				u.SetGroupVersionKind(object.GVK("NodeSet"))
				u.SetNamespace("metal-a")
				u.SetName(fmt.Sprintf("s%d", i))
				if err := admin.Create(t.Context(), u); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	stored := time.Since(began)
	began = time.Now()
	cmd := exec.Command(program, "--namespace", "metal-a", "--dir", t.TempDir(), "--state", t.TempDir(), "--health", "127.0.0.1:0", "--metrics", metrics, "--webhook", "127.0.0.1:"+port, "--leader-elect-namespace", "caisson-system")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it keeps nothing
		_ = cmd.Wait()         // it was killed
	})
	for end := time.Now().Add(20 * time.Minute); ; time.Sleep(5 * time.Second) {
		out, err := c.Kubectl(t, "", "get", "nodesets", "--namespace", "metal-a", "-o", "jsonpath={range .items[*]}{.status.observedGeneration}{\"\\n\"}{end}")
		if err == nil && strings.Count(out, "1\n") >= objects {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("not looked at: %v, %d", err, strings.Count(out, "1\n"))
		}
	}
	looked := time.Since(began)
	began = time.Now()
	if out, err := c.Kubectl(t, "apiVersion: caisson.dev/v1alpha1\nkind: NodeSet\nmetadata: {name: s7}\nspec: {match: {hosts: [\"[\"]}}\n", "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--namespace", "metal-a", "-f", "-"); err == nil || !strings.Contains(out, "is not a pattern of host names") {
		t.Errorf("%v\n%s", err, out)
	}
	answered := time.Since(began)
	time.Sleep(30 * time.Second) // its Events come after the statuses
	const idle = time.Minute
	before := requests(t, metrics)
	time.Sleep(idle)
	rate := (requests(t, metrics) - before) / idle.Seconds()
	if rate > 1 {
		t.Errorf("it asks %.2f times a second when nothing happens", rate)
	}
	mib := peak(t, cmd.Process.Pid) >> 10
	if mib > 300 {
		t.Errorf("it took %d MiB", mib)
	}
	t.Logf("%d objects were stored in %s and all had their status after %s; kubectl apply was answered in %s; it took %d MiB at most, and asks %.2f times a second when nothing happens",
		objects, stored.Round(time.Second), looked.Round(time.Second), answered.Round(10*time.Millisecond), mib, rate)
}

// peak is the most memory that a process had, in KiB.
func peak(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(status), "VmHWM:")
	text, _, _ = strings.Cut(strings.TrimSpace(text), " ")
	kib, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return kib
}
