// SPDX-License-Identifier: Apache-2.0

package server

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/spec"
)

// The page has each wave beside what its nodes report now, names those that failed,
// and the command for the next act; nothing that an operator wrote is markup.
func TestRolloutsPage(t *testing.T) {
	const bad = `<script>alert(1)</script>`
	plan := &spec.RolloutPlan{Name: "racks", Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"n1": "x", "n2": "x"}}, {Name: "2-r1", Nodes: map[string]string{"n3": "x"}}}}
	row := spec.Rollout{Phase: spec.RolloutHalted, Since: time.Now().Unix(), Author: "eve", Reason: bad,
		Waves: []spec.RolloutWave{{Begun: time.Now().Unix(), Failed: map[string]string{"n1": "degraded: " + bad}, LeftOut: map[string]string{"n2": "silent"}}}}
	s := newSiteWith(t, published("n1", "n2", "n3"), false, rollout.StateOf(plan, row))
	if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), "n1", 1, func(r *spec.Report) { r.Axes.Health = spec.Axis{State: "degraded"} })); status != 204 {
		t.Fatal(status, text)
	}
	status, text := s.ask("GET", "/rollouts", nil)
	if status != 200 || strings.Contains(text, bad) {
		t.Fatal(status, text)
	}
	for _, want := range []string{"racks: halted", "by eve: &lt;script&gt;", `<a href="/nodes/n1">n1</a> failed: degraded`, `<a href="/nodes/n2">n2</a> left out: silent`,
		`<td>2-r1</td><td>waiting</td>`, "caisson rollout undo registry.example/metal racks --site site.yaml", `<td class="number">1</td><td class="number">1</td><td class="number">1</td></tr>`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "caisson rollout run") {
		t.Error("what halted is to be run")
	}
	if _, text := s.ask("GET", "/v1/rollouts", nil); !strings.Contains(text, `"phase":"halted"`) && !strings.Contains(text, `"phase": "halted"`) {
		t.Errorf("as JSON: %s", text)
	}
	if _, text := s.ask("GET", "/v1/reports", nil); !strings.HasPrefix(text, `{"node":"n1",`) || strings.Count(text, "\n") != 1 {
		t.Errorf("reports: %s", text)
	}
}

// A rollout goes on only while somebody drives it: the page has the command.
func TestRolloutToDrive(t *testing.T) {
	plan := &spec.RolloutPlan{Name: "racks", Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"n1": "x"}}}}
	s := newSiteWith(t, published("n1"), false, rollout.StateOf(plan, spec.Rollout{Phase: spec.RolloutRunning, Waves: []spec.RolloutWave{{}}}))
	want := "caisson rollout run racks site.yaml --to registry.example/metal --key keys/operator.key --at " + s.url + "</code>"
	if _, text := s.ask("GET", "/rollouts", nil); !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
}
