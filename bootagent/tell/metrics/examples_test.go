// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/caisson-os/caisson/test/require"
)

const monitoring = "../../../examples/monitoring/"

// The example's configuration is one that Prometheus takes, and each of its alerts is
// for what it says.
func TestMonitoring(t *testing.T) {
	require.Slow(t)
	require.Tool(t, "promtool")
	for _, args := range [][]string{{"check", "config", "--syntax-only", "prometheus.yml"}, {"test", "rules", "caisson.rules.test.yml"}} {
		cmd := exec.CommandContext(t.Context(), "promtool", args...)
		cmd.Dir = monitoring
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	rules, tests := read(t, "caisson.rules.yml"), read(t, "caisson.rules.test.yml")
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1) {
		if n := strings.Count(tests, "alertname: "+m[1]+"\n"); n != 2 {
			t.Errorf("%s has %d tests, not one that fires and one that does not", m[1], n)
		}
	}
}

// The mixin has the alerts and the dashboard of the other files.
func TestMixin(t *testing.T) {
	require.Tool(t, "jsonnet")
	out, err := exec.CommandContext(t.Context(), "jsonnet", "-e", `local m = import '`+monitoring+`mixin.libsonnet'; { alerts: m.prometheusAlerts, boards: m.grafanaDashboards }`).Output()
	if err != nil {
		t.Fatal(err)
	}
	var mixin struct {
		Alerts struct{ Groups []any }
		Boards map[string]any
	}
	var want struct{ Groups []any }
	var dashboard any
	if err := errors.Join(json.Unmarshal(out, &mixin), json.Unmarshal([]byte(read(t, "dashboard.json")), &dashboard)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"caisson.rules.yml", "fleet.rules.yml"} {
		var file struct{ Groups []any }
		if err := yaml.Unmarshal([]byte(read(t, name)), &file); err != nil {
			t.Fatal(err)
		}
		want.Groups = append(want.Groups, file.Groups...)
	}
	of := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if len(want.Groups) != 2 || of(mixin.Alerts.Groups) != of(want.Groups) {
		t.Errorf("alerts are %s, not %s", of(mixin.Alerts.Groups), of(want.Groups))
	}
	if of(mixin.Boards) != of(map[string]any{"caisson-nodes.json": dashboard}) {
		t.Errorf("dashboards are %s", of(mixin.Boards))
	}
}

// The dashboard and the alerts ask for series and labels that nodes have.
func TestMonitoringAsksForWhatThereIs(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct{ List []struct{ Query any } }
	}
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	var queries []string
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			queries = append(queries, target.Expr)
		}
	}
	for _, v := range dashboard.Templating.List {
		if query, ok := v.Query.(string); ok {
			queries = append(queries, query)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllStringSubmatch(read(t, "caisson.rules.yml"), -1) {
		queries = append(queries, m[1])
	}
	if len(queries) < 20 {
		t.Errorf("%d queries", len(queries))
	}
	series := regexp.MustCompile(`(caisson_[a-z_]+)(?:\{([^}]*)\})?`)
	label := regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)"`)
	for _, query := range queries {
		for _, m := range series.FindAllStringSubmatch(query, -1) {
			i := slices.IndexFunc(table, func(f Family) bool { return f.Name == m[1] })
			if i < 0 {
				t.Errorf("%s: there is no %s", query, m[1])
				continue
			}
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				if l[1] != "instance" && l[1] != "job" && !slices.Contains(table[i].Labels, l[1]) {
					t.Errorf("%s: %s has no label %s", query, m[1], l[1])
				}
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(monitoring + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
