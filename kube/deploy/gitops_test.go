// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"

	"github.com/caisson-os/caisson/kube/test/kubetest"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// states are those that caisson-kube brings an object to: conditions as "Valid True Reason",
// and what Argo CD and Flux make of them.
var states = []struct {
	name, conditions string
	stale            bool
	argo, flux       string
	all              bool // of every kind, else of a Site
}{
	{"never looked at", "", false, "Progressing", "InProgress", true},
	{"changed since", "Valid True Valid, Planned True UpToDate, Published True Published", true, "Progressing", "InProgress", true},
	{"wrong", "Valid False Invalid, Planned False Invalid", false, "Degraded", "Failed", true},
	{"another's fleet", "Valid False FleetTaken", false, "Degraded", "Failed", false},
	{"no plan", "Valid True Valid, Planned False CannotPlan", false, "Degraded", "Failed", false},
	{"no plan, and it was published", "Valid True Valid, Planned False CannotPlan, Published Unknown NotLookedAt", false, "Degraded", "Failed", false},
	{"published", "Valid True Valid, Planned True UpToDate, Published True Published", false, "Healthy", "Current", true},
	{"waits for an approval", "Valid True Valid, Planned True Changes, Published False WaitsForApproval", false, "Suspended", "InProgress", false},
	{"nobody signs", "Valid True Valid, Planned True Changes, Published False NobodySigns", false, "Suspended", "InProgress", false},
	{"waits for a layer", "Valid True Valid, Planned True LayerMissing, Published False LayerMissing", false, "Suspended", "InProgress", false},
	{"moves", "Valid True Valid, Planned True Changes, Published False RolloutUnderWay", false, "Progressing", "InProgress", false},
	{"cannot", "Valid True Valid, Planned True Changes, Published False CannotPublish", false, "Degraded", "Failed", false},
}

// inState returns an object of a kind in a state.
func inState(kind, conditions string, stale bool) map[string]any {
	o := map[string]any{"apiVersion": cluster.Group + "/" + cluster.Version, "kind": kind, "metadata": map[string]any{"name": "x", "generation": int64(3)}}
	if conditions == "" {
		return o
	}
	var list []any
	for text := range strings.SplitSeq(conditions, ", ") {
		if word := strings.Fields(text); kind == cluster.Site || word[0] == "Valid" {
			list = append(list, map[string]any{"type": word[0], "status": word[1], "reason": word[2], "message": "because"})
		}
	}
	looked := int64(3)
	if stale {
		looked = 2
	}
	o["status"] = map[string]any{"observedGeneration": looked, "conditions": list}
	return o
}

// TestStatesAreReal: the reasons above are those that the reconciler writes.
func TestStatesAreReal(t *testing.T) {
	var code strings.Builder
	for _, dir := range []string{"sites", "object"} {
		files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
		}
	}
	for _, s := range states {
		for text := range strings.SplitSeq(s.conditions, ", ") {
			if word := strings.Fields(text); len(word) == 3 && !strings.Contains(code.String(), "\""+word[2]+"\"") {
				t.Errorf("%s: nobody writes the reason %s", s.name, word[2])
			}
		}
	}
}

// table is a value for Lua, as Argo CD passes an object.
func table(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		t := l.NewTable()
		for key, e := range v {
			t.RawSetString(key, table(l, e))
		}
		return t
	case []any:
		t := l.NewTable()
		for _, e := range v {
			t.Append(table(l, e))
		}
		return t
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	}
	return lua.LNil
}

// TestArgoHealth runs the scripts as Argo CD does, on every kind in every state, as they come
// out of an API server into its configuration, which keeps what else it has.
func TestArgoHealth(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "argocd")
	if out, err := c.Kubectl(t, "", "create", "configmap", "argocd-cm", "--namespace", "argocd", "--from-literal=url=https://argo.example.org"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := c.Kubectl(t, "", "apply", "--server-side", "-k", filepath.Join("gitops", "argocd")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := c.Kubectl(t, "", "get", "configmap", "argocd-cm", "--namespace", "argocd", "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cm struct{ Data map[string]string }
	if err := yaml.Unmarshal([]byte(out), &cm); err != nil || cm.Data["url"] == "" {
		t.Fatalf("what was there is gone: %v\n%s", err, out)
	}
	for _, k := range cluster.Kinds() {
		if !k.Doc {
			continue
		}
		script := cm.Data["resource.customizations.health."+cluster.Group+"_"+k.Kind]
		for _, s := range states {
			if !s.all && k.Kind != cluster.Site {
				continue
			}
			l := lua.NewState(lua.Options{SkipOpenLibs: true})
			for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString} {
				if err := l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
					t.Fatal(err)
				}
			}
			l.SetGlobal("obj", table(l, inState(k.Kind, s.conditions, s.stale)))
			if err := l.DoString(script); err != nil {
				t.Fatalf("%s: %v", k.Kind, err)
			}
			hs, ok := l.Get(-1).(*lua.LTable)
			if !ok {
				t.Fatalf("%s: the script returns no table", k.Kind)
			}
			if got := hs.RawGetString("status").String(); got != s.argo || hs.RawGetString("message").String() == "" {
				t.Errorf("%s, %s: %s, want %s", k.Kind, s.name, got, s.argo)
			}
			l.Close()
		}
	}
}

// TestFluxHealth runs the expressions in Flux' order: in progress, failed, current. One that
// names what an object has not yet is asked again.
func TestFluxHealth(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("gitops", "flux", "metal-a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		Spec struct {
			HealthCheckExprs []struct{ APIVersion, Kind, InProgress, Failed, Current string }
		}
	}
	if err := yaml.UnmarshalStrict(text, &map[string]any{}); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &k); err != nil {
		t.Fatal(err)
	}
	env, err := cel.NewEnv(cel.Variable("metadata", cel.DynType), cel.Variable("spec", cel.DynType), cel.Variable("status", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	holds := func(expression string, object map[string]any) (yes, known bool) {
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			t.Fatalf("%s: %v", expression, issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		v, _, err := program.Eval(object)
		if err != nil {
			return false, false
		}
		yes, ok := v.Value().(bool)
		if !ok {
			t.Fatalf("%s is no yes or no", expression)
		}
		return yes, true
	}
	seen := map[string]bool{}
	for _, e := range k.Spec.HealthCheckExprs {
		seen[e.Kind] = e.APIVersion == cluster.Group+"/"+cluster.Version
		for _, s := range states {
			if !s.all && e.Kind != cluster.Site {
				continue
			}
			object, got := inState(e.Kind, s.conditions, s.stale), "InProgress"
			for _, step := range []struct{ word, expression string }{{"InProgress", e.InProgress}, {"Failed", e.Failed}, {"Current", e.Current}} {
				yes, known := holds(step.expression, object)
				if yes {
					got = step.word
				}
				if yes || !known {
					break
				}
			}
			if got != s.flux {
				t.Errorf("%s, %s: %s, want %s", e.Kind, s.name, got, s.flux)
			}
		}
	}
	for _, kind := range cluster.Kinds() {
		if kind.Doc && !seen[kind.Kind] {
			t.Errorf("Flux has no health check of %s", kind.Kind)
		}
	}
}
