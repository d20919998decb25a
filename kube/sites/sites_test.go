// SPDX-License-Identifier: Apache-2.0

package sites_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/kube/object"
	"github.com/caisson-os/caisson/kube/sites"
	"github.com/caisson-os/caisson/kube/test/kubetest"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// trusted is the key of the bridge that was started last, and signer signs with it.
var (
	trusted []sign.Verifier
	signer  crypto.Signer
)

// bridge runs a reconciler in a cluster until the test ends. Its key is operator of the
// namespaces.
func bridge(t *testing.T, c *kubetest.Cluster, change func(*sites.Reconciler), namespaces ...string) {
	t.Helper()
	log.SetLogger(logr.Discard())
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	trusted, signer = []sign.Verifier{sign.VerifierOf(key)}, key
	dir := t.TempDir()
	for _, name := range namespaces {
		if err := os.MkdirAll(filepath.Join(dir, name, "keys"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "keys", "operator.pub"), sign.VerifierOf(key).PEM(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	skip := true
	mgr, err := ctrl.NewManager(c.Env.Config, ctrl.Options{Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}}, Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip}})
	if err != nil {
		t.Fatal(err)
	}
	r := &sites.Reconciler{Client: mgr.GetClient(), Events: mgr.GetEventRecorder("caisson-kube"), Dir: dir, State: t.TempDir(), Again: time.Hour, Now: time.Now, Seen: unseen{},
		Signing: sites.Signing{Signers: []crypto.Signer{key}, Approval: sites.Required, NewFleet: true}, Open: func(ref string) (*registry.Registry, error) { return registry.Open(ref, pull.Options{PlainHTTP: true}) }}
	if change != nil {
		change(r)
	}
	if err := r.Watch(mgr); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, stop := contextOf(t)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// condition waits until an object has a condition with a status and a reason, and returns
// its message.
func condition(t *testing.T, c client.Client, kind, namespace, name, condition, want string) string {
	t.Helper()
	var last string
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		u := get(t, c, kind, namespace, name)
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, e := range list {
			if one := e.(map[string]any); one["type"] == condition {
				last = one["status"].(string) + " " + one["reason"].(string)
				if last == want && one["observedGeneration"] == u.GetGeneration() {
					return one["message"].(string)
				}
			}
		}
	}
	t.Fatalf("%s %s: %s is %q, want %q", kind, name, condition, last, want)
	return ""
}

func get(t *testing.T, c client.Client, kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(object.GVK(kind))
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, u); err != nil {
		t.Fatal(err)
	}
	return u
}

// apply applies documents as people do.
func apply(t *testing.T, c *kubetest.Cluster, namespace, text string) {
	t.Helper()
	if out, err := c.Kubectl(t, text, "apply", "--server-side", "--force-conflicts", "--namespace", namespace, "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

const head = "---\napiVersion: caisson.dev/v1alpha1\n"

// TestNamespaceIsASite: from objects to signed overlays, by kubectl alone.
func TestNamespaceIsASite(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	fleet := registryOf(t)
	bridge(t, c, nil, "metal-a")

	apply(t, c, "metal-a", head+"kind: Site\nmetadata: {name: metal-a}\nregistry: "+fleet+"\nnodes: [{name: n1}, {name: n2, labels: {role: storage}}]\nconf: {sysctl: {vm.swappiness: \"10\"}}\n"+
		head+"kind: NodeSet\nmetadata: {name: storage}\nspec: {match: {labels: {role: storage}}}\n")
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Valid", "True Valid")
	condition(t, c.Admin, "NodeSet", "metal-a", "storage", "Valid", "True Valid")
	if says := condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Planned", "True Changes"); says != "2 nodes, to change: 2 cold" {
		t.Errorf("the plan is %q", says)
	}
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False WaitsForApproval")

	// An approval of another plan does not count; one of this publishes it.
	plan, _, _ := unstructured.NestedString(get(t, c.Admin, cluster.Site, "metal-a", "metal-a").Object, "status", "plan")
	approve := func(name, plan string) {
		apply(t, c, "metal-a", head+"kind: PublishApproval\nmetadata: {name: "+name+"}\nspec: {plan: \""+plan+"\", author: eve, reason: looked at it}\n")
	}
	approve("other", "sha256:"+strings.Repeat("0", 64))
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False WaitsForApproval")
	approve("this", plan)
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "True Published")
	if n, _, _ := unstructured.NestedInt64(get(t, c.Admin, cluster.Site, "metal-a", "metal-a").Object, "status", "generation"); n != 1 {
		t.Errorf("generation %d is published, want 1", n)
	}
	eventually(t, func() error {
		if left, _, _ := unstructured.NestedMap(get(t, c.Admin, cluster.Site, "metal-a", "metal-a").Object, "status", "changes"); len(left) > 0 {
			return fmt.Errorf("changes that are published are still there: %v", left)
		}
		return nil
	})

	// What is wrong has its place in the object, and nothing else is published.
	apply(t, c, "metal-a", head+"kind: NodeMaintenance\nmetadata: {name: trim}\nspec: {nodes: [storag], operations: [{name: trim, type: cron, schedule: {weekly: [sun], at: \"03:00\"}, exec: {argv: [/usr/sbin/fstrim, -A], timeout: 1h}}]}\n")
	if says := condition(t, c.Admin, "NodeMaintenance", "metal-a", "trim", "Valid", "False Invalid"); !strings.Contains(says, ".spec.nodes[0]: there is no NodeSet \"storag\": did you mean storage?") {
		t.Errorf("it says %q", says)
	}
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Planned", "False Invalid")
	out, err := c.Kubectl(t, "", "get", "sites,nodemaintenances", "--namespace", "metal-a")
	if err != nil || !strings.Contains(out, "VALID") || !strings.Contains(out, "storag") {
		t.Errorf("kubectl get: %v\n%s", err, out)
	}
	if out, err := c.Kubectl(t, "", "explain", "maintenancewindow.spec.opens.monthly"); err != nil || !strings.Contains(out, "1 to 5, or -1 for the last") {
		t.Errorf("kubectl explain: %v\n%s", err, out)
	}
	if out, err := c.Kubectl(t, "", "get", "events", "--namespace", "metal-a"); err != nil || strings.Count(out, "there is no NodeSet") != 1 {
		t.Errorf("kubectl get events: %v\n%s", err, out)
	}
}

// TestRollout: what a Rollout covers moves in its waves, each when the one before is well, and
// what none covers is published at once.
func TestRollout(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	fleet := registryOf(t)
	var well atomic.Value // overlay by node, as the nodes report
	well.Store(map[string]string{})
	bridge(t, c, func(r *sites.Reconciler) {
		r.Approval, r.Again = sites.Unasked, time.Second
		r.Reports = func(context.Context, string, report.Asked) (map[string]report.Standing, error) {
			out := map[string]report.Standing{}
			for node, overlay := range well.Load().(map[string]string) {
				out[node] = report.Standing{At: time.Now(), Well: time.Now().Add(-time.Hour), Overlay: overlay, Interval: time.Minute, Pinned: true}
			}
			return out, nil
		}
	}, "metal-a")
	site := func(swappiness string) string {
		return head + "kind: Site\nmetadata: {name: metal-a}\nregistry: " + fleet + "\nnodes: [{name: n1, labels: {rack: a}}, {name: n2, labels: {rack: a}}, {name: n3}]\nconf: {sysctl: {vm.swappiness: \"" + swappiness + "\"}}\n"
	}
	apply(t, c, "metal-a", site("10"))
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Planned", "True UpToDate")
	before := overlays(t, fleet)
	well.Store(before)
	apply(t, c, "metal-a", head+"kind: NodeSet\nmetadata: {name: racked}\nspec: {match: {labels: {rack: a}}}\n"+
		head+"kind: Rollout\nmetadata: {name: racks}\nspec: {nodes: [racked], soak: 0s, waves: [{hosts: [n1]}, {percent: 100}]}\n")
	condition(t, c.Admin, "Rollout", "metal-a", "racks", "Valid", "True Valid")
	apply(t, c, "metal-a", site("20"))
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False RolloutUnderWay")
	eventually(t, func() error {
		now := overlays(t, fleet)
		if now["n3"] == before["n3"] || now["n1"] == before["n1"] {
			u := get(t, c.Admin, cluster.Site, "metal-a", "metal-a")
			return fmt.Errorf("n3 is published at once, and n1 in the first wave: %v %v, %v", now, before, u.Object["status"])
		}
		return nil
	})
	if now := overlays(t, fleet); now["n2"] != before["n2"] {
		t.Error("n2 moved before n1 was well")
	}
	well.Store(overlays(t, fleet))
	eventually(t, func() error {
		if overlays(t, fleet)["n2"] == before["n2"] {
			return errors.New("n2 moves when n1 is well")
		}
		return nil
	})
	well.Store(overlays(t, fleet))
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "True Published")
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Planned", "True UpToDate")
}

// unseen counts nothing.
type unseen struct{}

func (unseen) Looked(string, time.Duration, error) {}
func (unseen) Site(string, map[string]bool, int64) {}

// events are those that a bridge tells, counted.
type events struct {
	mu    sync.Mutex
	lines []string
}

func (e *events) Eventf(o, _ runtime.Object, _, reason, action, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, o.(*unstructured.Unstructured).GetKind()+" "+action+" "+reason+" "+fmt.Sprintf(note, args...))
}

// of are those of a condition of the Site.
func (e *events) of(condition string) (out []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, line := range e.lines {
		if strings.HasPrefix(line, "Site "+condition+" ") {
			out = append(out, line)
		}
	}
	return out
}

// TestNotLookedAt: while the registry does not answer, or an object is not valid, a Site keeps
// what is known of what is published; that it is looked at again is not news.
func TestNotLookedAt(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	behind, prefix, _ := strings.Cut(registryOf(t), "/")
	var away atomic.Bool
	pass := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: behind})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if away.Load() {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		pass.ServeHTTP(w, req)
	}))
	t.Cleanup(front.Close)
	told := &events{}
	bridge(t, c, func(r *sites.Reconciler) { r.Events, r.Approval, r.Again = told, sites.Unasked, time.Second }, "metal-a")
	apply(t, c, "metal-a", siteObject("metal-a", strings.TrimPrefix(front.URL, "http://")+"/"+prefix, ""))
	const settled = "generation 1 is what the objects say"
	published := func(want string) string {
		t.Helper()
		says := condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", want)
		if n, _, _ := unstructured.NestedInt64(get(t, c.Admin, cluster.Site, "metal-a", "metal-a").Object, "status", "generation"); n != 1 {
			t.Errorf("%s: the generation is %d", want, n)
		}
		return says
	}
	eventually(t, func() error {
		if says := published("True Published"); says != settled {
			return errors.New(says)
		}
		return nil
	})
	before := len(told.of("Published"))
	for what, change := range map[string]struct{ spoil, mend func() }{
		"CannotPlan": {func() { away.Store(true) }, func() { away.Store(false) }},
		"Invalid": {func() {
			apply(t, c, "metal-a", head+"kind: NodeMaintenance\nmetadata: {name: trim}\nspec: {nodes: [nosuch], operations: [{name: trim, type: oneShot, exec: {argv: [/bin/true], timeout: 1h}}]}\n")
		}, func() {
			if out, err := c.Kubectl(t, "", "delete", "nodemaintenance", "trim", "--namespace", "metal-a"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}},
	} {
		change.spoil()
		condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Planned", "False "+what)
		if says := published("Unknown NotLookedAt"); !strings.HasSuffix(says, "last known: "+settled) {
			t.Errorf("%s: it says %q", what, says)
		}
		condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Progressing", "Unknown NotLookedAt")
		change.mend()
		condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Planned", "True UpToDate")
		if says := published("True Published"); says != settled {
			t.Errorf("%s: then it says %q", what, says)
		}
	}
	if now := told.of("Published"); len(now) != before {
		t.Errorf("what was published before is news: %q", now)
	}
	if now := told.of("Progressing"); len(now) > 1 {
		t.Errorf("that no rollout is under way is news: %q", now)
	}
}

// TestApprovedRollout: what was approved goes on from what no Rollout covers to the Rollouts, one
// after another, though each step takes a generation; what is written meanwhile is another plan.
func TestApprovedRollout(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	fleet := registryOf(t)
	var well atomic.Value // overlay by node, as the nodes report
	well.Store(map[string]string{})
	bridge(t, c, func(r *sites.Reconciler) {
		r.Again = time.Second
		r.Reports = func(context.Context, string, report.Asked) (map[string]report.Standing, error) {
			out := map[string]report.Standing{}
			for node, overlay := range well.Load().(map[string]string) {
				out[node] = report.Standing{At: time.Now(), Well: time.Now().Add(-time.Hour), Overlay: overlay, Interval: time.Minute, Pinned: true}
			}
			return out, nil
		}
	}, "metal-a")
	site := func(swappiness string) string {
		return head + "kind: Site\nmetadata: {name: metal-a}\nregistry: " + fleet + "\nnodes: [{name: n1, labels: {rack: a}}, {name: n2, labels: {rack: b}}, {name: n3}]\nconf: {sysctl: {vm.swappiness: \"" + swappiness + "\"}}\n"
	}
	apply(t, c, "metal-a", site("10"))
	approve(t, c, "metal-a", "first", waitsFor(t, c, "metal-a", ""))
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Planned", "True UpToDate")
	before := overlays(t, fleet)
	well.Store(before)
	for _, rack := range []string{"a", "b"} {
		apply(t, c, "metal-a", head+"kind: NodeSet\nmetadata: {name: rack-"+rack+"}\nspec: {match: {labels: {rack: "+rack+"}}}\n"+
			head+"kind: Rollout\nmetadata: {name: rack-"+rack+"}\nspec: {nodes: [rack-"+rack+"], soak: 0s, waves: [{percent: 100}]}\n")
		condition(t, c.Admin, "Rollout", "metal-a", "rack-"+rack, "Valid", "True Valid")
	}
	apply(t, c, "metal-a", site("20"))
	approve(t, c, "metal-a", "second", waitsFor(t, c, "metal-a", ""))
	eventually(t, func() error {
		now := overlays(t, fleet)
		well.Store(now)
		for _, node := range []string{"n1", "n2", "n3"} {
			if now[node] == before[node] {
				u := get(t, c.Admin, cluster.Site, "metal-a", "metal-a")
				return fmt.Errorf("%s does not move: %v", node, u.Object["status"])
			}
		}
		return nil
	})
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "True Published")
	apply(t, c, "metal-a", site("30"))
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False WaitsForApproval")
}

// TestRenewedMeanwhile: signatures that are renewed between an approval and its publish, as is
// done daily, leave the approval what it is.
func TestRenewedMeanwhile(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	fleet := registryOf(t)
	bridge(t, c, nil, "metal-a")
	apply(t, c, "metal-a", siteObject("metal-a", fleet, ""))
	approve(t, c, "metal-a", "first", waitsFor(t, c, "metal-a", ""))
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "True Published")
	apply(t, c, "metal-a", siteObject("metal-a", fleet, "conf: {sysctl: {vm.swappiness: \"10\"}}\n"))
	plan := waitsFor(t, c, "metal-a", "")
	reg, err := registry.Open(fleet, pull.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	p := &publish.Publisher{Reader: published.Reader{Registry: reg, Signers: []crypto.Signer{signer}, Say: func(string, ...any) {}}}
	eventually(t, func() error {
		p.Now = time.Now().UTC().Truncate(time.Second)
		_, err := p.Refresh(t.Context(), publish.Lists{})
		return err
	})
	approve(t, c, "metal-a", "second", plan)
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "True Published")
}

// TestSignedApproval: a Site asks for more than caisson-kube does, and never for less.
func TestSignedApproval(t *testing.T) {
	c := kubetest.Start(t)
	for _, name := range []string{"metal-a", "metal-b"} {
		c.Namespace(t, name)
	}
	signed := func(plan string) string {
		t.Helper()
		statements, err := preview.Approve([]crypto.Signer{signer}, plan, sign.ApprovalPredicate{Fleet: "metal-a", Author: "eve", IssuedAt: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		text, err := cluster.NewApproval("", "signed", cluster.ApprovalSpec{Plan: plan, Author: "eve", Statements: statements}).YAML()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	t.Run("the Site asks", func(t *testing.T) {
		bridge(t, c, func(r *sites.Reconciler) { r.Approval = sites.Unasked }, "metal-a")
		apply(t, c, "metal-a", siteObject("metal-a", registryOf(t), "trust: {approval: signed}\n"))
		plan := waitsFor(t, c, "metal-a", "")
		approve(t, c, "metal-a", "unsigned", plan)
		says := condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False WaitsForApproval")
		if !strings.Contains(says, "0 of 1 operators signed: caisson approve --fleet metal-a --plan "+plan) {
			t.Errorf("it says %q", says)
		}
		apply(t, c, "metal-a", signed(plan))
		condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "True Published")
	})
	t.Run("caisson-kube asks", func(t *testing.T) {
		bridge(t, c, func(r *sites.Reconciler) { r.Approval = sites.Signed }, "metal-b")
		apply(t, c, "metal-b", siteObject("metal-b", registryOf(t), "trust: {approval: required}\n"))
		approve(t, c, "metal-b", "unsigned", waitsFor(t, c, "metal-b", ""))
		apply(t, c, "metal-b", head+"kind: NodeSet\nmetadata: {name: again}\nspec: {}\n")
		condition(t, c.Admin, "NodeSet", "metal-b", "again", "Valid", "True Valid")
		condition(t, c.Admin, cluster.Site, "metal-b", "metal-b", "Published", "False WaitsForApproval")
	})
}

// approve applies an approval of a plan.
func approve(t *testing.T, c *kubetest.Cluster, namespace, name, plan string) {
	t.Helper()
	apply(t, c, namespace, head+"kind: PublishApproval\nmetadata: {name: "+name+"}\nspec: {plan: \""+plan+"\", author: eve, reason: looked at it}\n")
}

// waitsFor waits until the Site of a namespace that is called so waits for an approval of
// another plan than before, and returns the plan.
func waitsFor(t *testing.T, c *kubetest.Cluster, namespace, before string) (plan string) {
	t.Helper()
	condition(t, c.Admin, cluster.Site, namespace, namespace, "Published", "False WaitsForApproval")
	eventually(t, func() error {
		plan, _, _ = unstructured.NestedString(get(t, c.Admin, cluster.Site, namespace, namespace).Object, "status", "plan")
		if plan == "" || plan == before {
			return fmt.Errorf("the plan is %q", plan)
		}
		return nil
	})
	return plan
}

// overlays are the digests that are published, by node.
func overlays(t *testing.T, ref string) map[string]string {
	t.Helper()
	reg, err := registry.Open(ref, pull.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	p := &publish.Publisher{Reader: published.Reader{Registry: reg, Now: time.Now().UTC().Truncate(time.Second), Say: func(string, ...any) {}}}
	out := map[string]string{}
	eventually(t, func() error { // while somebody publishes, it is refused
		p.Now = time.Now().UTC().Truncate(time.Second)
		f, err := p.Find(t.Context(), published.Policy{Operator: trusted, Threshold: 1})
		if err != nil {
			return err
		}
		clear(out)
		rows, err := f.Nodes(t.Context())
		for name, row := range rows {
			out[name] = row.Overlay
		}
		return err
	})
	return out
}
