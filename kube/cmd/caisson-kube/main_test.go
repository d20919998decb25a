// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goyaml "go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/kube/object"
	"github.com/caisson-os/caisson/kube/test/kubetest"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// recorded notes what is asked of an API server, as a rule of RBAC names it.
type recorded struct {
	mu  sync.Mutex
	did map[string]bool
}

func (r *recorded) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if what := ruleOf(req); what != "" {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.did[what] = true
			if err == nil && resp.StatusCode == http.StatusForbidden {
				r.did["FORBIDDEN "+what] = true
			}
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// ruleOf returns "VERB GROUP RESOURCE" of a request, "" of one for no resource.
func ruleOf(req *http.Request) string {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = parts[1], parts[3:]
	default:
		return ""
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	resource := parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	verb := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodGet: "get"}[req.Method]
	if verb == "get" && len(parts) == 1 {
		verb = "list"
		if req.URL.Query().Get("watch") != "" {
			verb = "watch"
		}
	}
	return verb + " " + group + " " + resource
}

// granted are the verbs that the roles of a file give to caisson-kube; those of the Job that
// installs the webhook, which have its name, it has not.
func granted(t *testing.T, name string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for d := goyaml.NewDecoder(strings.NewReader(string(text))); ; {
		var doc any
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		data, err := yaml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		var role rbacv1.ClusterRole // a Role has the same rules
		if err := yaml.Unmarshal(data, &role); err != nil {
			t.Fatal(err)
		}
		if role.Name == "caisson-kube-webhook" {
			continue
		}
		for _, r := range role.Rules {
			for _, g := range r.APIGroups {
				for _, resource := range r.Resources {
					for _, verb := range r.Verbs {
						out[verb+" "+g+" "+resource] = true
					}
				}
			}
		}
	}
}

// fleetService is a fleet's: three nodes, the first of which asks to be drained.
type fleetService struct {
	mu      sync.Mutex
	nodes   []view.Line
	drained bool
	freed   bool
}

func (s *fleetService) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var answer any
	switch {
	case req.URL.Path == "/v1/nodes":
		answer = map[string]any{"nodes": s.nodes, "all": len(s.nodes)}
	case req.URL.Path == "/v1/slots" && !s.freed:
		answer = map[string]any{"groups": []any{map[string]any{"name": "default", "held": []any{map[string]any{"group": "default", "node": "n1", "draining": !s.drained}}}}}
	case req.URL.Path == "/v1/slots":
		answer = map[string]any{"groups": []any{}}
	case req.URL.Path == "/v1/slots/default/n1/drained":
		s.drained = true
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(answer) // the client says what is wrong
}

func (s *fleetService) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *fleetService) isDrained() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drained
}

// TestDeployed: what kube/deploy says is enough for all that caisson-kube does, and has
// no verb that it does not use.
func TestDeployed(t *testing.T) {
	c := kubetest.Start(t)
	if out, err := c.Kubectl(t, "", "apply", "--server-side", "--force-conflicts", "-k", with(t, "example", "drain", "conditions")); err != nil {
		t.Fatalf("kubectl apply -k: %v\n%s", err, out)
	}
	if out, err := c.Kubectl(t, "", "get", "deployment", "caisson-kube", "--namespace", "caisson-system", "-o", "yaml"); err != nil || !strings.Contains(out, "path: metal-a/keys/operator.pub") || !strings.Contains(out, "name: state") {
		t.Errorf("%v\n%s", err, out)
	}
	// The pods of the deployment are such as its namespace takes.
	if out, err := c.Kubectl(t, podOf(t, c), "create", "--dry-run=server", "-f", "-"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	port := freePort(t)
	askAt(t, c, "https://127.0.0.1:"+port+"/validate")
	seen := &recorded{did: map[string]bool{}}
	if err := (&options{electIn: "caisson-system"}).install(t.Context(), account(c, "caisson-kube-webhook")); err != nil {
		t.Fatal(err)
	}
	config := account(c, "caisson-kube")
	config.Wrap(seen.wrap)
	fleet := &fleetService{nodes: []view.Line{{Name: "n1", Condition: view.Fine}, {Name: "n2", Condition: view.Behind, Why: "it runs generation 1"}, {Name: "n3", Condition: view.Fine}}}
	server := httptest.NewServer(fleet)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "metal-a", "keys"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := published(t, c)
	public, err := os.ReadFile(filepath.Join(d.dir, "keys", "operator.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "metal-a", "keys", "operator.pub"), public, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.Admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl(t, pods, "apply", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, config, options{dir: dir, state: t.TempDir(), metrics: "0", health: "0", plainHTTP: true, elect: true, electIn: "caisson-system", again: time.Hour, webhook: "127.0.0.1:" + port,
			fleets: []string{"metal-a=" + server.URL}, registries: []string{"metal-a=" + d.registry}, pace: 1000, conditions: true, drains: true, drainMost: 1, drain: drainPolicy(time.Minute)})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(200 * time.Millisecond) {
			if time.Now().After(end) {
				seen.mu.Lock()
				defer seen.mu.Unlock()
				t.Fatalf("%s: not within three minutes; it asked for %v", what, seen.did)
			}
		}
	}
	kubectl := func(want string, args ...string) func() bool {
		return func() bool {
			out, err := c.Kubectl(t, "", args...)
			return err == nil && strings.Contains(out, want)
		}
	}
	if out, err := c.Kubectl(t, strings.ReplaceAll(everyKind, "REGISTRY", registrytest.WithReferrers(t)+"/fleet"), "apply", "--server-side", "--namespace", "metal-a", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, kind := range []string{"site/metal-a", "nodeset/all", "maintenancewindow/night", "nodemaintenance/trim", "operationtemplate/trim", "rollout/racks", "nodeservice/dns"} {
		until(kind, kubectl("observedGeneration", "get", kind, "--namespace", "metal-a", "-o", "jsonpath={.status}"))
	}
	until("the nodes are there", kubectl("behind", "get", "fleetnodes", "--namespace", "metal-a"))
	until("n1 is drained", fleet.isDrained)
	fleet.set(func() { fleet.freed, fleet.nodes = true, fleet.nodes[:2]; fleet.nodes[1].Condition = view.Fine })
	until("n1 is let go", func() bool {
		out, err := c.Kubectl(t, "", "get", "node", "n1", "-o", "jsonpath={.spec.unschedulable}")
		return err == nil && out == ""
	})
	until("n3 is gone", func() bool {
		out, err := c.Kubectl(t, "", "get", "fleetnodes", "--namespace", "metal-a", "-o", "name")
		return err == nil && !strings.Contains(out, "n3")
	})
	until("n2 is fine", func() bool {
		out, err := c.Kubectl(t, "", "get", "fleetnode", "n2", "--namespace", "metal-a", "-o", "jsonpath={.status.condition}")
		return err == nil && out == "fine"
	})
	may := granted(t, filepath.Join("..", "..", "deploy", "base", "rbac.yaml"))
	for _, name := range []string{"base/webhook.yaml", "drain/role.yaml", "conditions/role.yaml"} {
		maps.Copy(may, granted(t, filepath.Join("..", "..", "deploy", name)))
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	var wrong []string
	for what := range seen.did {
		if !may[what] {
			wrong = append(wrong, "not granted: "+what)
		}
	}
	for what := range may {
		listed := strings.HasPrefix(what, "list ") && seen.did["watch "+strings.TrimPrefix(what, "list ")] // by an API server that streams no lists
		if !seen.did[what] && !listed && rare[what] == "" {
			wrong = append(wrong, "granted, and not used: "+what)
		}
	}
	slices.Sort(wrong)
	for _, line := range wrong {
		t.Error(line)
	}
}

// published is a desk at which a fleet of three nodes was published that take slots.
func published(t *testing.T, c *kubetest.Cluster) *desk {
	t.Helper()
	buildCaisson(t, t.TempDir())
	d := newDesk(t, c, "metal-a")
	site := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal-a}\nregistry: " + d.registry + "\nnodes: [{name: n1}, {name: n2}, {name: n3}]\n---\n" +
		"apiVersion: caisson.dev/v1alpha1\nkind: NodeMaintenance\nmetadata: {name: trim}\nspec:\n  operations: [{name: trim, type: oneShot, disruptive: true, exec: {argv: [/usr/sbin/fstrim, -A], timeout: 1h}}]\n  windows: [always]\n  slot: {group: default, max: 1, fleetlock: \"https://fleet.example.org\"}\n"
	if err := os.WriteFile(filepath.Join(d.dir, "site.yaml"), []byte(site), 0o644); err != nil {
		t.Fatal(err)
	}
	d.caisson("publish", "site.yaml", "--key", "keys/operator.key", "--new-fleet")
	return d
}

// with is a kustomization of a directory of kube/deploy and components beside it.
func with(t *testing.T, base string, components ...string) string {
	t.Helper()
	tree := t.TempDir() // what a test writes stays out of the source
	if err := os.CopyFS(tree, os.DirFS(filepath.Join("..", "..", "deploy"))); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(tree, "test")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "resources: [../" + base + "]\ncomponents: [../" + strings.Join(components, ", ../") + "]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestThiefOfTheToken: what the ServiceAccount of caisson-kube may do by kube/deploy/base, asked of
// an API server, and what each component adds; the account that installs the webhook may do no
// more than that.
func TestThiefOfTheToken(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	const (
		bridge, job = "caisson-kube", "caisson-kube-webhook"
		hook        = "validatingwebhookconfigurations.admissionregistration.k8s.io"
	)
	can := func(account string, args ...string) bool {
		t.Helper()
		out, err := c.Kubectl(t, "", append([]string{"auth", "can-i", "--as=system:serviceaccount:caisson-system:" + account}, args...)...)
		if err != nil && strings.TrimSpace(out) != "no" && !strings.HasSuffix(strings.TrimSpace(out), "\nno") {
			t.Fatalf("%v\n%s", err, out)
		}
		return err == nil
	}
	apply := func(dir string) {
		t.Helper()
		if out, err := c.Kubectl(t, "", "apply", "--server-side", "--force-conflicts", "-k", dir); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	apply(filepath.Join("..", "..", "deploy", "base"))
	type row struct {
		account string
		args    []string
	}
	rows := func(account string, all ...string) (out []row) {
		for _, one := range all {
			out = append(out, row{account, strings.Fields(one)})
		}
		return out
	}
	drain := rows(bridge, "get node/n1", "patch node/n1", "list pods", "create pods --subresource=eviction", "get daemonsets.apps")
	condition := rows(bridge, "patch nodes/n1 --subresource=status")
	never := slices.Concat(
		rows(bridge, "patch "+hook+"/caisson-kube-webhook", "get "+hook+"/caisson-kube-webhook", "create "+hook, "patch secrets/caisson-kube-webhook -n caisson-system", "get secrets/metal-a -n caisson-system", "list secrets -n caisson-system",
			"get secrets/db -n metal-a", "list secrets -A", "create pods -n caisson-system", "create serviceaccounts/caisson-kube-webhook --subresource=token -n caisson-system", "create publishapprovals.caisson.dev -n metal-a", "patch sites.caisson.dev -n metal-a",
			"delete sites.caisson.dev -n metal-a", "patch customresourcedefinitions", "create clusterrolebindings", "patch clusterroles", "impersonate users", "delete node/n1", "create nodes", "patch deployments -n caisson-system"),
		rows(job, "patch "+hook+"/another", "create "+hook, "list secrets -n caisson-system", "get secrets/metal-a -n caisson-system", "list sites.caisson.dev -n metal-a", "patch node/n1", "create pods -n caisson-system"))
	always := slices.Concat(
		rows(bridge, "list sites.caisson.dev -A", "list publishapprovals.caisson.dev -A", "patch sites.caisson.dev --subresource=status -n metal-a", "create fleetnodes.caisson.dev -n metal-a", "list nodes", "get secrets/caisson-kube-webhook -n caisson-system", "update leases -n caisson-system"),
		rows(job, "patch "+hook+"/caisson-kube-webhook", "patch secrets/caisson-kube-webhook -n caisson-system"))
	want := func(when string, yes bool, all ...row) {
		t.Helper()
		for _, r := range all {
			if can(r.account, r.args...) != yes {
				t.Errorf("%s: may %s %s: %v", when, r.account, strings.Join(r.args, " "), !yes)
			}
		}
	}
	want("base", true, always...)
	want("base", false, slices.Concat(never, drain, condition)...)
	apply(with(t, "base", "drain", "conditions"))
	want("with drain and conditions", true, slices.Concat(drain, condition)...)
	want("with drain and conditions", false, never...)
}

// podOf is the pod that the deployment would have.
func podOf(t *testing.T, c *kubetest.Cluster) string {
	t.Helper()
	var d appsv1.Deployment
	if err := c.Admin.Get(t.Context(), client.ObjectKey{Namespace: "caisson-system", Name: "caisson-kube"}, &d); err != nil {
		t.Fatal(err)
	}
	pod := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "caisson-kube", Namespace: "caisson-system"}, Spec: d.Spec.Template.Spec}
	data, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// rare are verbs that this test does not see used.
var rare = map[string]string{
	"patch events.k8s.io events": "an Event that is said again within minutes is counted",
	"patch  events":              "the same, of who leads",
}

// TestManyChangesLong: ten thousand changes in about a minute take memory within the limit of the
// deployment, and then it is quiet.
func TestManyChangesLong(t *testing.T) {
	require.Long(t)
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	program := filepath.Join(t.TempDir(), "caisson-kube")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, c.Env.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--namespace", "metal-a", "--dir", t.TempDir(), "--state", t.TempDir(), "--health", "127.0.0.1:0", "--leader-elect-namespace", "metal-a")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it keeps nothing
		_ = cmd.Wait()         // it was killed
	})
	if out, err := c.Kubectl(t, strings.ReplaceAll(everyKind, "REGISTRY", "127.0.0.1:1/none"), "apply", "--server-side", "--namespace", "metal-a", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	fast := rest.CopyConfig(c.Env.Config)
	fast.QPS = -1
	admin := kubetest.Client(t, fast)
	began := time.Now()
	const sets, changes = 1000, 9
	var wg sync.WaitGroup
	for worker := range 10 {
		wg.Go(func() {
			for i := worker; i < sets; i += 10 {
				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(object.GVK("NodeSet"))
				u.SetNamespace("metal-a")
				u.SetName(fmt.Sprintf("s%d", i))
				u.Object["spec"] = map[string]any{}
				if err := admin.Create(t.Context(), u); err != nil {
					t.Error(err)
					return
				}
				for n := range changes {
					patch := fmt.Sprintf(`{"spec": {"match": {"labels": {"role": "r%d"}}}}`, n)
					if err := admin.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		out, err := c.Kubectl(t, "", "get", "nodeset", "s999", "--namespace", "metal-a", "-o", "jsonpath={.status.observedGeneration}")
		if err == nil && out == strconv.Itoa(changes+1) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("not looked at: %v %s", err, out)
		}
	}
	kib := peak(t, cmd.Process.Pid)
	if kib > 300<<10 {
		t.Errorf("it took %d KiB", kib)
	}
	t.Logf("%d changes in %s; it took %d MiB at most", sets*(changes+1), took.Round(time.Second), kib>>10)
}

// TestPrometheusOfANamespace: each names its own, and what is wrong with an address is said without
// its password.
func TestPrometheusOfANamespace(t *testing.T) {
	got, err := clientsOf([]string{"a=https://one.example.org", "b=http://127.0.0.1:9090/prom"})
	if err != nil || len(got) != 2 || got["a"] == nil || got["b"] == nil {
		t.Errorf("%v, %v", got, err)
	}
	for named, want := range map[string]string{
		"https://eve:secret@one.example.org":  "write NAMESPACE=URL",
		"a=http://eve:secret@one.example.org": "--prometheus a: a password is not sent to one.example.org without TLS",
		"a=one.example.org:9090":              "is not the URL of a Prometheus",
	} {
		if _, err := clientsOf([]string{named}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", named, err, want)
		}
	}
}
