// SPDX-License-Identifier: Apache-2.0

// Package deploy holds what deploys caisson-kube: definitions, a kustomize base, an example,
// and a Helm chart, which its tests render and compare.
package deploy

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	goyaml "go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"

	"github.com/caisson-os/caisson/kube/test/kubetest"
)

// documents adds the objects of a YAML text, by kind and name.
func documents(t *testing.T, text string, into map[string]map[string]any) {
	t.Helper()
	for d := goyaml.NewDecoder(strings.NewReader(text)); ; {
		var doc map[string]any
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if doc == nil {
			continue
		}
		name, _ := doc["metadata"].(map[string]any)["name"].(string)
		into[doc["kind"].(string)+" "+name] = doc
	}
}

// render returns what the chart makes of values, by kind and name, and as one text.
func render(t *testing.T, values map[string]any) (map[string]map[string]any, string) {
	t.Helper()
	c, err := loader.Load("chart")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.CRDObjects()); n != 9 {
		t.Errorf("the chart has %d definitions", n)
	}
	v, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "caisson", Namespace: "caisson-system"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, v)
	if err != nil {
		t.Fatal(err)
	}
	objects, all := map[string]map[string]any{}, bytes.Buffer{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		documents(t, files[name], objects)
		all.WriteString("---\n" + files[name] + "\n")
	}
	return objects, all.String()
}

// TestChartIsTheBase: without values the chart is what the kustomize base is.
func TestChartIsTheBase(t *testing.T) {
	want := map[string]map[string]any{}
	for _, name := range []string{"rbac.yaml", "people.yaml", "deployment.yaml", "networkpolicy.yaml", "webhook.yaml"} {
		text, err := os.ReadFile(filepath.Join("base", name))
		if err != nil {
			t.Fatal(err)
		}
		documents(t, string(text), want)
	}
	got, _ := render(t, nil)
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s:\n%v\nthe base has\n%v", name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("the chart has %d objects, the base %d", len(got), len(want))
	}
	without, text := render(t, map[string]any{"webhook": map[string]any{"enabled": false}})
	if len(without) != len(got)-11 || strings.Contains(text, "9443") {
		t.Errorf("without a webhook it has %d objects:\n%s", len(without), text)
	}
}

// TestRolesAreComponents: by default no Node is drained or gets a condition; the chart makes of its
// values what the components do of the base, and says where options of a drain are for nobody.
func TestRolesAreComponents(t *testing.T) {
	for _, name := range []string{"drain", "conditions"} {
		role := "ClusterRole caisson-kube-" + name
		if none, text := render(t, nil); none[role] != nil || strings.Contains(text, "--drain") || strings.Contains(text, "--node-conditions") {
			t.Errorf("%s by default:\n%s", name, text)
		}
		got, _ := render(t, map[string]any{name: map[string]any{"enabled": true}})
		want := map[string]map[string]any{}
		documents(t, kustomized(t, "../base", "../"+name), want)
		for _, object := range []string{role, "ClusterRoleBinding caisson-kube-" + name, "Deployment caisson-kube"} {
			if got[object] == nil || !reflect.DeepEqual(got[object], want[object]) {
				t.Errorf("%s:\n%v\nthe component makes\n%v", object, got[object], want[object])
			}
		}
	}
	c, err := loader.Load("chart")
	if err != nil {
		t.Fatal(err)
	}
	v, err := chartutil.ToRenderValues(c, map[string]any{"drain": map[string]any{"args": []any{"--drain-timeout=1h"}}}, chartutil.ReleaseOptions{Name: "caisson", Namespace: "caisson-system"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Render(c, v); err == nil || !strings.Contains(err.Error(), "drain.args are for nobody: set drain.enabled") {
		t.Errorf("options of a drain that is not enabled: %v", err)
	}
}

// TestMetricsAreReached: where metrics are served, the policy lets who reads them in, and the
// chart makes of its values what the component does of the base.
func TestMetricsAreReached(t *testing.T) {
	if _, text := render(t, nil); strings.Contains(text, "8080") {
		t.Errorf("metrics are served by default:\n%s", text)
	}
	monitoring := []any{map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "monitoring"}}}}
	got, text := render(t, map[string]any{"metrics": map[string]any{"enabled": true, "from": monitoring}})
	if !strings.Contains(text, `"--metrics=:8080"`) {
		t.Errorf("no metrics are served:\n%s", text)
	}
	want := map[string]map[string]any{}
	documents(t, kustomized(t, "../base", "../metrics"), want)
	for _, name := range []string{"Deployment caisson-kube", "NetworkPolicy caisson-kube"} {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s:\n%v\nthe component makes\n%v", name, got[name], want[name])
		}
	}
	anybody, _ := render(t, map[string]any{"metrics": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}})
	ingress := anybody["NetworkPolicy caisson-kube"]["spec"].(map[string]any)["ingress"]
	if !reflect.DeepEqual(ingress, []any{map[string]any{"ports": []any{map[string]any{"port": 8080}}}}) {
		t.Errorf("metrics alone, for anybody: %v", ingress)
	}
}

// kustomized is what kubectl makes of a base and a component.
func kustomized(t *testing.T, base, component string) string {
	t.Helper()
	tree := t.TempDir() // not this one: a program that is built meanwhile would not be of a commit alone
	if err := os.CopyFS(tree, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(tree, "test")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("resources: ["+base+"]\ncomponents: ["+component+"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(kubetest.Programs(t), "kubectl"), "kustomize", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestSecretsAreGivenByName: no Secret of a fleet is read by default, and the chart gives what
// the component does.
func TestSecretsAreGivenByName(t *testing.T) {
	fleet := map[string]any{"secret": "metal-a", "files": map[string]any{}}
	values := map[string]any{"fleets": map[string]any{"metal-a": fleet}}
	if none, text := render(t, values); none["Role caisson-kube-secrets"] != nil {
		t.Errorf("Secrets are read by default:\n%s", text)
	}
	fleet["secrets"] = []any{"db"}
	got, _ := render(t, values)
	text, err := os.ReadFile(filepath.Join("secrets", "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]any{}
	documents(t, string(text), want)
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s:\n%v\nthe component has\n%v", name, got[name], want[name])
		}
	}
}

// TestChartApplies: what the chart makes of a fleet's values an API server takes, and it is
// what the example has.
func TestChartApplies(t *testing.T) {
	objects, text := render(t, map[string]any{"stateClaim": "state", "fleets": map[string]any{"metal-a": map[string]any{
		"service": "https://fleet.example.org:8443", "secret": "metal-a", "files": map[string]any{"operator.pub": "keys/operator.pub", "token": "token"}}}})
	d, err := goyaml.Marshal(objects["Deployment caisson-kube"])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--fleet=metal-a=https://fleet.example.org:8443", "path: metal-a/keys/operator.pub", "claimName: state"} {
		if !strings.Contains(string(d), want) {
			t.Errorf("the deployment has no %q:\n%s", want, d)
		}
	}
	if _, text := render(t, map[string]any{"webhook": map[string]any{"failurePolicy": "Fail"}}); !strings.Contains(text, "failurePolicy: Fail") {
		t.Errorf("objects are taken while nobody answers:\n%s", text)
	}
	c := kubetest.Start(t)
	c.Namespace(t, "caisson-system")
	if out, err := c.Kubectl(t, text, "apply", "--server-side", "-f", "-"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
