// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/caisson-os/caisson/kube/test/kubetest"
	"github.com/caisson-os/caisson/test/freeport"
	"github.com/caisson-os/caisson/test/registrytest"
)

func freePort(t testing.TB) string {
	t.Helper()
	_, port, err := net.SplitHostPort(freeport.Keep(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// askAt has the API server ask at an address, as it has no network of pods.
func askAt(t testing.TB, c *kubetest.Cluster, url string) {
	t.Helper()
	patch := `{"webhooks": [{"name": "objects.caisson.dev", "clientConfig": {"service": null, "url": "` + url + `"}}]}`
	if out, err := c.Kubectl(t, "", "patch", "validatingwebhookconfiguration", "caisson-kube-webhook", "--type=strategic", "-p", patch); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// hooked is a cluster with what kube/deploy/base has, in which caisson-kube runs and is asked.
type hooked struct {
	*kubetest.Cluster
	t       testing.TB
	port    string
	metrics string // address
	asks    *asks
}

// asks are the requests of caisson-kube that an answer may be the reason of: who leads, and
// what is looked at once a minute for the certificate, is asked for anyway.
type asks struct {
	mu    sync.Mutex
	paths []string
}

func (a *asks) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if !strings.Contains(req.URL.Path, "/leases") && !strings.HasSuffix(req.URL.Path, "/caisson-kube-webhook") {
			a.mu.Lock()
			a.paths = append(a.paths, req.Method+" "+req.URL.Path)
			a.mu.Unlock()
		}
		return next.RoundTrip(req)
	})
}

// since returns what was asked for since it was asked last.
func (a *asks) since() (paths []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	paths, a.paths = a.paths, nil
	return paths
}

func startHooked(t testing.TB) *hooked {
	t.Helper()
	c := kubetest.Start(t)
	if out, err := c.Kubectl(t, "", "apply", "--server-side", "--force-conflicts", "-k", filepath.Join("..", "..", "deploy", "base")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h := &hooked{c, t, freePort(t), "127.0.0.1:" + freePort(t), &asks{}}
	askAt(t, c, "https://127.0.0.1:"+h.port+"/validate")
	if err := (&options{electIn: "caisson-system"}).install(t.Context(), account(c, "caisson-kube-webhook")); err != nil {
		t.Fatal(err)
	}
	h.run()
	return h
}

// account is a ServiceAccount of kube/deploy.
func account(c *kubetest.Cluster, name string) *rest.Config {
	config := rest.CopyConfig(c.Env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:caisson-system:" + name, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	return config
}

// run runs caisson-kube until the test ends.
func (h *hooked) run() {
	h.t.Helper()
	config := account(h.Cluster, "caisson-kube")
	config.Wrap(h.asks.wrap)
	ctx, stop := context.WithCancel(context.WithoutCancel(h.t.Context()))
	done := make(chan error, 1)
	dir, state := h.t.TempDir(), h.t.TempDir()
	go func() {
		done <- run(ctx, config, options{dir: dir, state: state, metrics: h.metrics, health: "0", plainHTTP: true, elect: true, electIn: "caisson-system", again: time.Hour, webhook: "127.0.0.1:" + h.port})
	}()
	h.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			h.t.Error(err)
		}
	})
}

func (h *hooked) apply(text string, more ...string) (string, error) {
	return h.Kubectl(h.t, text, append([]string{"apply", "--server-side", "--force-conflicts", "--namespace", "metal-a", "-f", "-"}, more...)...)
}

// until waits until something is so.
func (h *hooked) until(what string, ok func() (string, bool)) {
	h.t.Helper()
	var last string
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		var yes bool
		if last, yes = ok(); yes {
			return
		}
	}
	h.t.Fatalf("%s: %s", what, last)
}

// TestWebhook: kubectl apply says what the condition of the object would say, in the same
// words; nothing else is refused; and what follows when nobody answers is the operator's
// choice.
func TestWebhook(t *testing.T) {
	h := startHooked(t)
	h.Namespace(t, "metal-a")
	head := "---\napiVersion: caisson.dev/v1alpha1\n"
	site := head + "kind: Site\nmetadata: {name: metal-a}\nregistry: " + registrytest.WithReferrers(t) + "/fleet\nnodes: [{name: n1, labels: {role: storage}}]\n"
	bad := site + "conf: {sysctl: {vm.swappiness: ten}, files: {motd: {path: /tmp/x, content: x}}}\n"
	h.until("it is asked", func() (string, bool) {
		out, err := h.apply(bad, "--dry-run=server")
		return out, err != nil && strings.Contains(out, "objects.caisson.dev")
	})
	refused, err := h.apply(bad)
	if err == nil || !strings.Contains(refused, ".conf.files.motd.path") || !strings.Contains(refused, ".conf.sysctl") {
		t.Fatalf("%v\n%s", err, refused)
	}

	// A folder is applied in any order: a name that is not there yet, and no Site yet, are
	// warnings.
	late := head + "kind: NodeMaintenance\nmetadata: {name: trim}\nspec: {nodes: [storage], operations: [{name: trim, type: oneShot, exec: {argv: [/usr/sbin/fstrim, -A], timeout: 1h}}]}\n"
	if out, err := h.apply(late); err != nil || !strings.Contains(out, "Warning: the namespace has no Site") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := h.apply(site); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h.until("the set is missed", func() (string, bool) {
		out, err := h.apply(late, "--dry-run=server")
		return out, err == nil && strings.Contains(out, "Warning: .spec.nodes[0]: there is no NodeSet \"storage\"")
	})
	if out, err := h.apply(head + "kind: NodeSet\nmetadata: {name: storage}\nspec: {match: {labels: {role: storage}}}\n"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	h.until("nothing is missed", func() (string, bool) {
		out, err := h.apply(late, "--dry-run=server")
		return out, err == nil && !strings.Contains(out, "Warning")
	})

	// A second Site, and one whose fleet another namespace has.
	if out, err := h.apply(strings.ReplaceAll(site, "name: metal-a}", "name: a-first}")); err == nil || !strings.Contains(out, "more than one Site") {
		t.Errorf("%v\n%s", err, out)
	}
	h.Namespace(t, "other")
	if out, err := h.Kubectl(t, site, "apply", "--server-side", "--namespace", "other", "-f", "-"); err == nil || !strings.Contains(out, "the namespace metal-a has a Site of this name") {
		t.Errorf("%v\n%s", err, out)
	}

	// Nobody answers: the object is taken, and its condition says what was refused.
	askAt(t, h.Cluster, "https://127.0.0.1:"+freePort(t)+"/validate")
	h.until("it is taken", func() (string, bool) { out, err := h.apply(bad); return out, err == nil })
	h.until("the status says it", func() (string, bool) {
		out, err := h.Kubectl(t, "", "get", "site", "metal-a", "--namespace", "metal-a", "-o", "json")
		if err != nil {
			return out, false
		}
		var o struct {
			Status struct {
				Problems []struct{ Severity, Path, Message, Hint string }
			}
		}
		if err := json.Unmarshal([]byte(out), &o); err != nil || len(o.Status.Problems) < 2 {
			return out, false
		}
		for _, p := range o.Status.Problems {
			text := p.Path + ": " + p.Message
			if p.Hint != "" {
				text += ": " + p.Hint
			}
			if !strings.Contains(strings.ReplaceAll(refused, "\n", " "), strings.ReplaceAll(text, "\n", " ")) {
				t.Errorf("the status has %q, and kubectl apply said\n%s", text, refused)
			}
		}
		return out, true
	})

	// What was done is counted.
	h.until("it is counted", func() (string, bool) {
		resp, err := http.Get("http://" + h.metrics + "/metrics")
		if err != nil {
			return err.Error(), false
		}
		defer resp.Body.Close() // only read
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return err.Error(), false
		}
		for _, want := range []string{`caisson_kube_admission_seconds_count{verdict="refused"}`, `caisson_kube_look_seconds_count{namespace="metal-a",result="ok"}`, `caisson_kube_site_condition{condition="Valid",namespace="metal-a"} 0`} {
			if !strings.Contains(string(text), want) {
				return want, false
			}
		}
		return "", true
	})

	// Asked again, a change of what is not content is taken, and one of content is not.
	askAt(t, h.Cluster, "https://127.0.0.1:"+h.port+"/validate")
	h.until("it is asked again", func() (string, bool) {
		out, err := h.apply(bad+"machine: {}\n", "--dry-run=server")
		return out, err != nil && strings.Contains(out, "objects.caisson.dev")
	})
	if out, err := h.Kubectl(t, "", "label", "site", "metal-a", "--namespace", "metal-a", "looked=at"); err != nil || !strings.Contains(out, "Warning: .conf.") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := h.Kubectl(t, "", "delete", "site", "metal-a", "--namespace", "metal-a"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestClosed: with the component of kube/deploy/closed nothing is taken while nobody answers.
func TestClosed(t *testing.T) {
	c := kubetest.Start(t)
	if out, err := c.Kubectl(t, "", "apply", "--server-side", "-k", with(t, "base", "closed")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	askAt(t, c, "https://127.0.0.1:"+freePort(t)+"/validate")
	c.Namespace(t, "metal-a")
	out, err := c.Kubectl(t, "apiVersion: caisson.dev/v1alpha1\nkind: NodeSet\nmetadata: {name: all}\nspec: {}\n", "apply", "--server-side", "--namespace", "metal-a", "-f", "-")
	if err == nil || !strings.Contains(out, "failed calling webhook \"objects.caisson.dev\"") {
		t.Errorf("%v\n%s", err, out)
	}
}

// thousand is a Site of a thousand nodes, and the same with a mistake.
func thousand() (good, bad string) {
	var nodes []string
	for i := range 1000 {
		nodes = append(nodes, fmt.Sprintf("{name: n%d, labels: {rack: r%d}, match: {macs: [\"52:54:00:00:%02x:%02x\"]}}", i, i/40, i>>8, i&0xff))
	}
	good = "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal-a}\nregistry: 127.0.0.1:1/none\nnodes: [" + strings.Join(nodes, ",\n  ") + "]\n" +
		"conf: {sysctl: {vm.swappiness: \"10\"}, files: {motd: {path: /etc/motd, content: x}}}\n"
	return good, strings.Replace(good, "/etc/motd", "/tmp/motd", 1)
}

// refuses applies a Site of a thousand nodes, and waits until one with a mistake is refused.
func (h *hooked) refuses() (bad string) {
	h.t.Helper()
	h.Namespace(h.t, "metal-a")
	good, bad := thousand()
	if out, err := h.apply(good); err != nil {
		h.t.Fatalf("%v\n%s", err, out)
	}
	h.until("it is asked", func() (string, bool) {
		out, err := h.apply(bad, "--dry-run=server")
		return out, err != nil
	})
	return bad
}

// TestAnswersAskNobody: an answer about a thousand nodes is made of what is in memory.
func TestAnswersAskNobody(t *testing.T) {
	h := startHooked(t)
	bad := h.refuses()
	h.until("the Site was looked at", func() (string, bool) {
		out, err := h.Kubectl(t, "", "get", "site", "metal-a", "--namespace", "metal-a", "-o", "jsonpath={.status.observedGeneration}")
		return out, err == nil && out == "1"
	})
	if len(h.asks.since()) == 0 {
		t.Fatal("its requests are not counted")
	}
	h.until("nothing is written any more", func() (string, bool) { // its Events come after the status
		h.asks.since()
		time.Sleep(3 * time.Second)
		paths := h.asks.since()
		return fmt.Sprint(paths), len(paths) == 0
	})
	for range 20 {
		if out, err := h.apply(bad, "--dry-run=server"); err == nil || !strings.Contains(out, "motd.path") {
			t.Fatal(out)
		}
	}
	if paths := h.asks.since(); len(paths) > 0 {
		t.Errorf("for twenty answers it asked for %q", paths)
	}
}

// BenchmarkWebhook: what kubectl apply waits for in a namespace of a thousand nodes.
func BenchmarkWebhook(b *testing.B) {
	h := startHooked(b)
	bad := h.refuses()
	var slowest time.Duration
	for b.Loop() {
		began := time.Now()
		if out, err := h.apply(bad, "--dry-run=server"); err == nil || !strings.Contains(out, "motd.path") {
			b.Fatal(out)
		}
		slowest = max(slowest, time.Since(began))
	}
	b.ReportMetric(slowest.Seconds(), "slowest-s")
}
