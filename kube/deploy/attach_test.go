// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/caisson-os/caisson/kube/test/kubetest"
)

// attachChart renders the chart attach with values files, as helm -f has them, and racks.
func attachChart(t *testing.T, racks map[string]any, files ...string) (string, error) {
	t.Helper()
	values := map[string]any{}
	for _, name := range files {
		v, err := chartutil.ReadValuesFile(name)
		if err != nil {
			t.Fatal(err)
		}
		values = chartutil.CoalesceTables(v, values)
	}
	values["attach"] = map[string]any{"from": "registry.example.org:5000/metal-a", "fleet": "metal-a", "keys": map[string]any{"operator.pub": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"}, "enroll": []any{"--threshold=1"}, "racks": racks}
	return attachWith(t, values)
}

// attachWith renders the chart attach with values.
func attachWith(t *testing.T, values map[string]any) (string, error) {
	t.Helper()
	c, err := loader.Load("attach")
	if err != nil {
		t.Fatal(err)
	}
	v, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "attach", Namespace: "caisson-attach"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := engine.Render(c, v)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(out)) {
		all.WriteString("---\n" + out[name] + "\n")
	}
	return all.String(), nil
}

// TestAttachTakesDivingbellsValues: its values file is given as it stands, and what the hosts get
// is not what helm makes of it.
func TestAttachTakesDivingbellsValues(t *testing.T) {
	racks := map[string]any{"a": "look"}
	alone, err := attachChart(t, racks)
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range []string{"divingbell", "migration"} {
		with, err := attachChart(t, racks, filepath.Join("..", "..", "examples", example, "values.yaml"))
		if err != nil || with != alone {
			t.Errorf("%s: %v\n%s", example, err, with)
		}
	}
	for _, want := range []string{"ExecStart=/usr/lib/caisson/caisson-agent run", `"$agent" enroll --from`, "nsenter --mount=", "systemd-run --quiet --wait", "--threshold=1", "-----BEGIN PUBLIC KEY-----"} {
		if !strings.Contains(alone, want) {
			t.Errorf("the hosts do not get %q:\n%s", want, alone)
		}
	}
	if text, err := attachWith(t, map[string]any{"attach": map[string]any{"from": "x", "fleet": "x", "racks": racks, "keys": map[string]any{"operator": "x"}}}); err == nil || !strings.Contains(err.Error(), "call it operator.pub") {
		t.Errorf("a key that no host would find: %v\n%s", err, text)
	}
	for _, wrong := range []map[string]any{nil, {"a": "both"}} {
		if text, err := attachChart(t, wrong); err == nil {
			t.Errorf("racks %v are taken:\n%s", wrong, text)
		}
	}
}

// TestAttachKeepsNoPrivileges: a pod is root of its host before it starts, and then nobody; it
// has no token of the cluster, and nothing is granted.
func TestAttachKeepsNoPrivileges(t *testing.T) {
	text, err := attachChart(t, map[string]any{"a": "apply"})
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]map[string]any{}
	documents(t, text, objects)
	if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, []string{"ConfigMap caisson-attach", "DaemonSet caisson-attach-a"}) {
		t.Errorf("it makes %v", got)
	}
	var d appsv1.DaemonSet
	data, err := yaml.Marshal(objects["DaemonSet caisson-attach-a"])
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, &d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template.Spec
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || len(pod.Containers) != 1 {
		t.Error("it has a token of the cluster")
	}
	if pod.HostPID || pod.HostIPC || pod.HostNetwork {
		t.Errorf("what stays is in namespaces of the host: %+v", pod)
	}
	c := pod.Containers[0]
	s := c.SecurityContext
	if len(c.VolumeMounts) != 0 || s.Privileged != nil || !*s.RunAsNonRoot || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("what stays has %+v and mounts %v", s, c.VolumeMounts)
	}
}

// TestAttachRackByRack: hosts of a rack are attached so many at a time, each when the one before
// is ready, and those of another rack are left alone.
func TestAttachRackByRack(t *testing.T) {
	c := kubetest.Start(t)
	c.Controllers(t, "daemonset-controller")
	if out, err := c.Kubectl(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: caisson-attach, labels: {pod-security.kubernetes.io/enforce: privileged}}\n", "create", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"a1", "a2", "a3", "b1", "b2"} {
		if err := c.Admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"topology.kubernetes.io/rack": name[:1]}}}); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(racks map[string]any) {
		t.Helper()
		text, err := attachChart(t, racks)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := c.Kubectl(t, text, "apply", "--server-side", "-f", "-"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	pods := func() (all []corev1.Pod) {
		t.Helper()
		var l corev1.PodList
		if err := c.Admin.List(t.Context(), &l, client.InNamespace("caisson-attach")); err != nil {
			t.Fatal(err)
		}
		return l.Items
	}
	in := func(rack, phase string) (n int) {
		for _, p := range pods() {
			if p.Labels["app"] == "caisson-attach-"+rack && slices.ContainsFunc(p.Spec.InitContainers[0].Env, func(e corev1.EnvVar) bool { return e.Name == "PHASE" && e.Value == phase }) {
				n++
			}
		}
		return n
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: not within two minutes", what)
			}
		}
	}
	ready := func() { // as kubelets say of pods whose work is done
		t.Helper()
		for _, p := range pods() {
			patch := `{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}`
			if err := c.Admin.Status().Patch(t.Context(), &p, client.RawPatch(types.StrategicMergePatchType, []byte(patch))); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
	}
	status := func(rack string) appsv1.DaemonSetStatus {
		t.Helper()
		var d appsv1.DaemonSet
		if err := c.Admin.Get(t.Context(), client.ObjectKey{Namespace: "caisson-attach", Name: "caisson-attach-" + rack}, &d); err != nil {
			t.Fatal(err)
		}
		if d.Status.ObservedGeneration != d.Generation {
			return appsv1.DaemonSetStatus{}
		}
		return d.Status
	}
	apply(map[string]any{"a": "look", "b": "look"})
	until("all hosts are looked at", func() bool { return in("a", "look") == 3 && in("b", "look") == 2 })
	ready()
	until("all are ready", func() bool { return status("a").NumberAvailable == 3 && status("b").NumberAvailable == 2 })

	apply(map[string]any{"a": "apply", "b": "look"})
	for n := 1; n <= 3; n++ {
		until("the next host of a is attached", func() bool {
			if got := in("a", "apply"); got > n {
				t.Fatalf("%d hosts are attached, and %d were ready", got, n-1)
			}
			s := status("a")
			return int(s.UpdatedNumberScheduled) == n && in("a", "apply") == n && s.NumberUnavailable == 1
		})
		ready()
	}
	until("all of a are", func() bool { s := status("a"); return s.UpdatedNumberScheduled == 3 && s.NumberAvailable == 3 })
	if in("b", "look") != 2 || in("b", "apply") != 0 {
		t.Error("the other rack was begun")
	}
	if out, err := c.Kubectl(t, "", "get", "secrets,serviceaccounts,roles,rolebindings", "--namespace", "caisson-attach", "-o", "name"); err != nil || strings.Contains(out, "attach") {
		t.Errorf("it has privileges: %v\n%s", err, out)
	}
}

// TestAttachScript: what the chart copies to hosts is the unit that the package has.
func TestAttachScript(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("..", "..", "packaging", "systemd", "caisson-agent.service"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := attachChart(t, map[string]any{"a": "look"})
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]map[string]any{}
	documents(t, text, objects)
	if got := objects["ConfigMap caisson-attach"]["data"].(map[string]any)["caisson-agent.service"]; strings.TrimSpace(got.(string)) != strings.TrimSpace(string(want)) {
		t.Errorf("the unit is\n%s", got)
	}
}

// TestAttachPage: the values of docs/kubernetes-nodes.md are taken.
func TestAttachPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "kubernetes-nodes.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "```yaml\n# not a site: attach.yaml\n")
	block, _, _ = strings.Cut(block, "```")
	values := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(block), &values); err != nil || !found {
		t.Fatal(err)
	}
	if out, err := attachWith(t, values); err != nil || strings.Count(out, "kind: DaemonSet") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
}
