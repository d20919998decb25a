// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
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
		Waves: []spec.RolloutWave{{Begun: time.Now().Unix(), Failed: map[string]string{"n1": "degraded: " + bad}, LeftOut: map[string]string{"n2": "silent"}, Stayed: map[string]string{"n2": "held: pin"}}}}
	s := newSiteWith(t, rowsOf("n1", "n2", "n3"), false, rollout.StateOf(plan, row))
	if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), "n1", 1, func(r *spec.Report) { r.Axes.Health = spec.Axis{State: "degraded"} })); status != 204 {
		t.Fatal(status, text)
	}
	status, text := s.ask("GET", "/rollouts", nil)
	if status != 200 || strings.Contains(text, bad) {
		t.Fatal(status, text)
	}
	for _, want := range []string{"racks: halted", "by eve: &lt;script&gt;", `<b>failed</b>: degraded: &lt;script&gt;alert(1)&lt;/script&gt;<br><a href="/nodes/n1">n1</a>`, `<b>left out</b>: silent<br><a href="/nodes/n2">n2</a>`,
		`<td>2-r1</td><td>waiting</td>`, `data-is="as published">–</td>`, "caisson rollout undo registry.example/metal racks --site site.yaml", `data-is="left out">1</td><td class="number" data-is="failed">1</td><td class="number" data-is="did not go back">1</td></tr>`, `<b>did not go back</b>: held: pin<br><a href="/nodes/n2">n2</a>`} {
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
	s := newSiteWith(t, rowsOf("n1"), false, rollout.StateOf(plan, spec.Rollout{Phase: spec.RolloutRunning, Waves: []spec.RolloutWave{{}}}))
	want := "caisson rollout run racks site.yaml --to registry.example/metal --key keys/operator.key --at " + s.url + "</code>"
	if _, text := s.ask("GET", "/rollouts", nil); !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
}

// A wave counts what it gave: what its nodes got since, or those that it left out, is another's.
func TestAWaveCountsItsOwn(t *testing.T) {
	for _, c := range []struct {
		gave, out string
		want      int
	}{{other(1), "", 1}, {other(2), "", 0}, {other(1), "n1", 0}} {
		row := spec.RolloutWave{Begun: 1, Done: 2}
		if c.out != "" {
			row.LeftOut = map[string]string{c.out: "silent"}
		}
		plan := &spec.RolloutPlan{Name: "racks", Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"n1": c.gave}}}}
		s := newSiteWith(t, rowsOf("n1"), false, rollout.StateOf(plan, spec.Rollout{Phase: spec.RolloutDone, Waves: []spec.RolloutWave{row}}))
		if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), "n1", 1, nil)); status != 204 {
			t.Fatal(status, text)
		}
		if _, text := s.ask("GET", "/rollouts", nil); !strings.Contains(text, fmt.Sprintf(`data-is="as published">%d</td>`, c.want)) {
			t.Errorf("gave %s, left out %q: want %d\n%s", c.gave, c.out, c.want, text)
		}
	}
}

// Of many nodes that failed the page says why once, before those that are left out, and
// counts those that it does not name.
func TestNamedNodes(t *testing.T) {
	w := rollout.WaveState{Failed: map[string]string{}, LeftOut: map[string]string{}}
	for i := range 100 {
		name := fmt.Sprintf("n%03d", i)
		w.Nodes = append(w.Nodes, name)
		switch {
		case i < 50:
			w.LeftOut[name] = "held"
		case i < 85:
			w.Failed[name] = "degraded"
		default:
			w.Failed[name] = "refuses " + name
		}
	}
	list, left := named([]rollout.WaveState{w})
	if len(list) != maxNamed || left != 100-35-(maxNamed-1) {
		t.Fatalf("%d reasons, %d nodes left: %+v", len(list), left, list)
	}
	if f := list[0]; f.What != "failed" || f.Why != "degraded" || f.Nodes[0] != "n050" || len(f.Nodes) != maxNodesOf || f.More != 5 {
		t.Errorf("%+v", f)
	}
	w.Failed = nil
	if list, left := named([]rollout.WaveState{w}); len(list) != 1 || list[0].What != "left out" || list[0].More != 20 || left != 0 {
		t.Errorf("%+v, %d left", list, left)
	}
}

// How far a rollout is, is where somebody looks, and not on its own page alone; one that
// ended well a day ago is not.
func TestRolloutsEverywhere(t *testing.T) {
	plan := &spec.RolloutPlan{Name: "racks", Rule: spec.RolloutRule{Soak: 600}, Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"n1": "x"}}, {Name: "2", Nodes: map[string]string{"n2": "x"}}}}
	hour := time.Now().Add(-time.Hour).Unix()
	begun := []spec.RolloutWave{{Begun: hour, Done: hour + 1200, LeftOut: map[string]string{"n1": "silent"}}, {Begun: time.Now().Unix()}}
	for _, c := range []struct {
		row                     spec.Rollout
		page, summary, measured string
	}{
		{spec.Rollout{Phase: spec.RolloutHalted, Since: hour, Reason: "wave <2>"}, `</a> halted: wave &lt;2&gt;</p>`, `"phase":"halted"`, `caisson_rollout_state{rollout="racks",state="halted"} 1`},
		{spec.Rollout{Phase: spec.RolloutRunning, Since: hour, Waves: begun}, `running, wave 2</td>`, `"wave":"2","waves":2,"done":1`, `caisson_rollout_waves_done{rollout="racks"} 1`},
		{spec.Rollout{Phase: spec.RolloutDone, Since: hour, Waves: begun, Reason: "1 of 2 left out"}, `left nodes out: 1 of 2 left out`, `"leftOut":1`, `caisson_rollout_nodes{rollout="racks",which="left_out"} 1`},
		{spec.Rollout{Phase: spec.RolloutDone, Since: hour - 90000}, ``, `"rollouts":[]`, `caisson_rollout_state{rollout="racks",state="done"} 1`},
	} {
		state := rollout.StateOf(plan, c.row)
		s := newSiteWith(t, rowsOf("n1", "n2"), false, state)
		for path, want := range map[string]string{"/": c.page, "/v1/summary": c.summary, "/metrics": c.measured} {
			if _, text := s.ask("GET", path, nil); !strings.Contains(text, want) || path == "/" && want == "" && strings.Contains(text, "racks") {
				t.Errorf("%s %s: no %q in\n%s", c.row.Phase, path, want, text)
			}
		}
		if b := state.Brief(time.Now()); c.row.Phase == spec.RolloutRunning && b.Ends.Sub(time.Now().Add(20*time.Minute)).Abs() > time.Minute { // the first wave took so long
			t.Errorf("it is to end at %s", b.Ends)
		}
	}
}

// Who drives a rollout asks for the reports of its plan's first waves, and gets all where
// the service does not know the plan yet.
func TestReportsOfAPlan(t *testing.T) {
	plan := &spec.RolloutPlan{Name: "racks", Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"n1": "x"}}, {Name: "2", Nodes: map[string]string{"n2": "x"}}}}
	s := newSiteWith(t, rowsOf("n1", "n2", "n3"), false, rollout.StateOf(plan, spec.Rollout{Plan: "sha256:abc", Phase: spec.RolloutRunning}))
	for _, n := range []string{"n1", "n2", "n3"} {
		if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), n, 1, nil)); status != 204 {
			t.Fatal(status, text)
		}
	}
	for query, want := range map[string]int{"": 3, "?plan=sha256:abc&waves=1": 1, "?plan=sha256:abc&waves=2": 2, "?plan=sha256:abc&waves=9": 2, "?plan=sha256:abc&waves=-1": 0, "?plan=sha256:other&waves=1": 3, "?plan=sha256:abc": 3} {
		if status, text := s.ask("GET", "/v1/reports"+query, nil); status != 200 || strings.Count(text, "\n") != want {
			t.Errorf("%s: %d, want %d in\n%s", query, status, want, text)
		}
	}
}
