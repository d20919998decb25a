// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/kube/test/kubetest"
	"github.com/caisson-os/caisson/spec"
)

// TestVerdict: a Node is configured where nothing may change any more but by order.
func TestVerdict(t *testing.T) {
	for c, want := range map[view.Condition]corev1.ConditionStatus{view.Fine: corev1.ConditionTrue, view.Held: corev1.ConditionTrue,
		view.Soaking: corev1.ConditionFalse, view.Behind: corev1.ConditionFalse, view.Silent: corev1.ConditionUnknown} {
		if got := verdict(c); got != want {
			t.Errorf("%s is %s, want %s", c, got, want)
		}
	}
}

// fleet is a service that knows some nodes.
type fleet struct {
	lines      []view.Line
	operations map[string][]spec.OperationStatus // by node
	asked      atomic.Int64                      // for operations
	url        string
}

func newFleet(t *testing.T, n int) *fleet {
	f := &fleet{}
	for i := range n {
		f.lines = append(f.lines, view.Line{Name: fmt.Sprintf("n%d", i), Condition: view.Fine, Generation: 7, Published: 7, Version: "2026.11", Health: "ok", Sync: "current", Tracking: "following", Activity: "idle"})
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if node, one := strings.CutPrefix(req.URL.Path, "/v1/nodes/"); one {
			f.asked.Add(1)
			_ = json.NewEncoder(w).Encode(map[string]any{"report": map[string]any{"operations": f.operations[node]}})
			return
		}
		from, _ := strconv.Atoi(req.URL.Query().Get("from"))
		most, _ := strconv.Atoi(req.URL.Query().Get("most"))
		end := min(from+most, len(f.lines))
		_ = json.NewEncoder(w).Encode(map[string]any{"nodes": f.lines[min(from, end):end], "all": len(f.lines)})
	}))
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

type recorded []string

func (t *recorded) Eventf(o, _ runtime.Object, kind, reason, _, note string, args ...any) {
	on := ""
	if u, ok := o.(*unstructured.Unstructured); ok {
		on = u.GetKind() + "/" + u.GetName() + " "
		if u.GetUID() == "" {
			on = "no UID " // kubectl describe would not find it
		}
	}
	*t = append(*t, on+kind+" "+reason+" "+fmt.Sprintf(note, args...))
}

// counted counts the requests that write.
func counted(config *rest.Config) (*rest.Config, *atomic.Int64) {
	n := &atomic.Int64{}
	c := rest.CopyConfig(config)
	c.QPS, c.Burst = -1, 0
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Method != http.MethodGet {
				n.Add(1)
			}
			return next.RoundTrip(req)
		})
	})
	return c, n
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func mirror(t *testing.T, c client.Client, f *fleet, events *recorded) *Mirror {
	t.Helper()
	s, err := New(f.url, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Mirror{Client: c, Reader: c, Events: events, Source: s, Namespace: "metal-a", Pace: rate.NewLimiter(rate.Inf, 1), Settle: time.Second, Every: time.Minute, Check: time.Hour, Now: time.Now, Conditions: true, Wrote: func(string, string) {}}
}

// TestFleetNodes: kubectl get fleetnodes is 'caisson fleet status', for nodes in the cluster
// and others, and only what changed is written.
func TestFleetNodes(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	config, writes := counted(c.Env.Config)
	f := newFleet(t, 3)
	f.lines[1].Condition, f.lines[1].Why = view.Degraded, "sysctl vm.swappiness is 60"
	if err := c.Admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
		t.Fatal(err)
	}
	var events recorded
	m := mirror(t, kubetest.Client(t, config), f, &events)
	copied := func(want int64) {
		t.Helper()
		before := writes.Load()
		if err := m.Copy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := writes.Load() - before; n != want {
			t.Errorf("%d requests wrote, want %d", n, want)
		}
	}
	copied(4) // three FleetNodes, and n1 is a Node
	copied(0)
	out, err := c.Kubectl(t, "", "get", "fleetnodes", "--namespace", "metal-a")
	if err != nil || !strings.Contains(out, "degraded") || !strings.Contains(out, "vm.swappiness") || strings.Count(out, "2026.11") != 3 {
		t.Errorf("kubectl get fleetnodes: %v\n%s", err, out)
	}
	for _, wide := range []bool{false, true} {
		args := []string{"get", "fleetnodes", "--namespace", "metal-a"}
		if wide {
			args = append(args, "-o", "wide")
		}
		out, err := c.Kubectl(t, "", args...)
		if err != nil || strings.Contains(out, "TRACKING") != wide || strings.Contains(out, "OPERATION") != wide || strings.Contains(out, "following") != wide {
			t.Errorf("kubectl get fleetnodes, wide %v: %v\n%s", wide, err, out)
		}
	}
	if out, err := c.Kubectl(t, "", "wait", "--for=condition=caisson.dev/Configured=false", "--timeout=10s", "node/n1"); err != nil {
		t.Errorf("kubectl wait: %v\n%s", err, out)
	}
	f.lines[1].Condition, f.lines[1].Why = view.Fine, ""
	copied(2)
	if out, err := c.Kubectl(t, "", "wait", "--for=condition=caisson.dev/Configured", "--timeout=10s", "node/n1"); err != nil {
		t.Errorf("kubectl wait: %v\n%s", err, out)
	}
	if want := "Warning Degraded degraded: sysctl vm.swappiness is 60\nNormal Fine fine: as published"; strings.Join(events, "\n") != want {
		t.Errorf("events:\n%s", strings.Join(events, "\n"))
	}
	f.lines = f.lines[:2]
	copied(1) // n2 left the fleet

	// Another instance takes over, and writes nothing that is there already; what somebody
	// forged or deleted meanwhile is put right.
	if out, err := c.Kubectl(t, "", "patch", "fleetnode", "n0", "--namespace", "metal-a", "--type=merge", "-p", `{"status": {"condition": "broken"}}`); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m = mirror(t, kubetest.Client(t, config), f, &events)
	copied(1)
	copied(0)
}

// TestPutRight: what somebody deleted, forged or made again is put right by the instance that
// works, and is not news.
func TestPutRight(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	config, writes := counted(c.Env.Config)
	f := newFleet(t, 3)
	f.lines[0].Condition, f.lines[0].Why = view.Degraded, "sysctl vm.swappiness is 60"
	node := func() {
		t.Helper()
		if err := c.Admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}); err != nil {
			t.Fatal(err)
		}
	}
	node()
	var events recorded
	now := time.Now()
	m := mirror(t, kubetest.Client(t, config), f, &events)
	m.Now = func() time.Time { return now }
	copied := func(what string, want int64) {
		t.Helper()
		before := writes.Load()
		if err := m.Copy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := writes.Load() - before; n != want {
			t.Errorf("%s: %d requests wrote, want %d", what, n, want)
		}
	}
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := c.Kubectl(t, "", args...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}
	says := func(what string) {
		t.Helper()
		if out := kubectl("get", "node", "n0", "-o", `jsonpath={.status.conditions[?(@.type=="caisson.dev/Configured")].reason}`); out != "Degraded" {
			t.Errorf("%s: the Node is %q", what, out)
		}
	}
	copied("at first", 4)
	told := len(events)

	// A Node's condition at the next look.
	kubectl("delete", "node", "n0")
	copied("no Node", 0)
	node()
	copied("made again", 1)
	says("made again")
	kubectl("patch", "node", "n0", "--subresource=status", "--type=strategic", "-p", `{"status": {"conditions": [{"type": "caisson.dev/Configured", "status": "True", "reason": "Fine", "message": "as published"}]}}`)
	copied("forged", 1)
	says("forged")
	copied("then", 0)

	// FleetNodes when they are read again.
	kubectl("delete", "fleetnode", "n1", "--namespace", "metal-a")
	kubectl("patch", "fleetnode", "n2", "--namespace", "metal-a", "--type=merge", "-p", `{"status": {"condition": "broken"}}`)
	copied("too early", 0)
	now = now.Add(m.Check)
	copied("FleetNodes", 2)
	copied("at last", 0)
	if out := kubectl("get", "fleetnodes", "--namespace", "metal-a"); strings.Count(out, "fine") != 2 {
		t.Error(out)
	}
	if len(events) != told {
		t.Errorf("what was put right is news: %q", events[told:])
	}
}

// TestManyRows: how many requests a large fleet takes, at first and for one change. With
// CAISSON_LONG it has ten thousand nodes.
func TestManyRows(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	config, writes := counted(c.Env.Config)
	n := 1000
	if os.Getenv("CAISSON_LONG") != "" {
		n = 10_000
	}
	f := newFleet(t, n)
	var events recorded
	m := mirror(t, kubetest.Client(t, config), f, &events)
	began := time.Now()
	if err := m.Copy(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d FleetNodes with %d requests in %s", n, writes.Load(), time.Since(began).Round(time.Second))
	if writes.Load() != int64(n) {
		t.Errorf("%d requests for %d FleetNodes", writes.Load(), n)
	}
	f.lines[n/2].Condition = view.Broken
	began = time.Now()
	if err := m.Copy(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Logf("one change in %s", time.Since(began).Round(time.Millisecond))
	if writes.Load() != int64(n)+1 {
		t.Errorf("%d requests after one change", writes.Load())
	}
}

// TestStolenServiceIsShownInBounds: what is written of a node stays short, and an Event is one that the API
// server takes, whatever the service says.
func TestStolenServiceIsShownInBounds(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	f := newFleet(t, 1)
	if err := c.Admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}); err != nil {
		t.Fatal(err)
	}
	var events recorded
	m := mirror(t, c.Admin, f, &events)
	if err := m.Copy(t.Context()); err != nil {
		t.Fatal(err)
	}
	long, at := strings.Repeat("x", 100_000), time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	f.lines[0] = view.Line{Name: "n0", Condition: view.Degraded, Why: long, Version: long, Agent: long, Health: long, Sync: long, Tracking: long,
		Activity: long, Ended: at}
	f.operations = map[string][]spec.OperationStatus{"n0": {{Name: long, State: spec.OperationDone, Detail: long, Since: at}}}
	before := len(events)
	if err := m.Copy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"fleetnode", "node"} {
		out, err := c.Kubectl(t, "", "get", what, "n0", "--namespace", "metal-a", "-o", "json")
		if err != nil || len(out) > 20_000 {
			t.Errorf("%s: %d bytes, %v", what, len(out), err)
		}
	}
	if len(events) != before+2 {
		t.Errorf("%d events", len(events)-before)
	}
	for _, e := range events[before:] {
		for _, reason := range []string{"OperationDone ", "Degraded "} {
			if _, note, _ := strings.Cut(e, reason); len(note) > 1024 {
				t.Errorf("an Event of %d bytes", len(note))
			}
		}
	}
}

// TestOperationsAreEvents: what an operation came to is one Event of the node and one of the
// NodeMaintenance, also where another instance takes over, and the service is asked about a
// node only when an operation of it ended.
func TestOperationsAreEvents(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	if out, err := c.Kubectl(t, "apiVersion: caisson.dev/v1alpha1\nkind: NodeMaintenance\nmetadata: {name: trim}\nspec: {operations: [{name: weekly, type: cron, schedule: {weekly: [sun], at: \"03:00\"}, exec: {argv: [/usr/sbin/fstrim, -A], timeout: 1h}}]}\n",
		"apply", "--server-side", "--namespace", "metal-a", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f := newFleet(t, 2)
	var events recorded
	m := mirror(t, c.Admin, f, &events)
	look := func(want ...string) {
		t.Helper()
		before := len(events)
		if err := m.Copy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(events[before:], "\n"); got != strings.Join(want, "\n") {
			t.Errorf("events:\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	}
	sunday := time.Date(2026, 11, 22, 3, 0, 0, 123456789, time.UTC)
	says := func(node int, at time.Time, all ...spec.OperationStatus) {
		f.lines[node].Ended = at
		if f.operations == nil {
			f.operations = map[string][]spec.OperationStatus{}
		}
		f.operations[f.lines[node].Name] = all
	}
	// What was over before the cluster knew the node is not news.
	says(1, sunday, spec.OperationStatus{Name: "trim/weekly", State: spec.OperationScheduled, Since: sunday})
	look()
	says(0, sunday, spec.OperationStatus{Name: "trim/weekly", State: spec.OperationScheduled, Since: sunday}, spec.OperationStatus{Name: "other/one", State: spec.OperationWaiting, For: spec.ForWindow, Since: sunday.Add(time.Hour)})
	look("FleetNode/n0 Normal OperationDone trim/weekly done", "NodeMaintenance/trim Normal OperationDone on n0: trim/weekly done")
	asked := f.asked.Load()
	look()
	m = mirror(t, c.Admin, f, &events) // another instance
	look()
	if n := f.asked.Load() - asked; n != 0 {
		t.Errorf("the service was asked %d times about operations that are known", n)
	}
	next := sunday.AddDate(0, 0, 7)
	says(0, next, spec.OperationStatus{Name: "trim/weekly", State: spec.OperationFailed, Detail: "exit status 1\nno space", Since: next}, spec.OperationStatus{Name: "swap", State: spec.OperationDone, Since: next.Add(-time.Hour)})
	look("FleetNode/n0 Normal OperationDone swap done", "FleetNode/n0 Warning OperationFailed trim/weekly failed: exit status 1; no space", "NodeMaintenance/trim Warning OperationFailed on n0: trim/weekly failed: exit status 1; no space")
	look()
	out, err := c.Kubectl(t, "", "get", "fleetnode", "n0", "--namespace", "metal-a", "-o", "jsonpath={.status.operation} {.status.ended}")
	if err != nil || out != "trim/weekly failed: exit status 1; no space 2026-11-29T03:00:00.123456789Z" {
		t.Errorf("%v\n%s", err, out)
	}
}
