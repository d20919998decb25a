// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/spec"
)

// A node's boot is drawn within the chart, and is in the JSON as it was told.
func TestBootChart(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n2"), false)
	boot := []spec.Step{
		{Name: "network", Start: 1000, Took: 3000, Result: spec.StepOK},
		{Name: "overlay", Start: 4000, Took: 0.4, Result: "no route to registry"},
		{Name: "layer", Start: 4000, Took: 96_000, Result: spec.StepOK, Bytes: &spec.Bytes{Fetched: 812_000_000, Had: 1}},
		{Name: "switch root", Start: 100_000, Took: 0, Result: spec.StepOK},
	}
	for node, steps := range map[string][]spec.Step{"n1": boot, "n2": nil} {
		if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), node, 1, func(r *spec.Report) { r.Boot = steps })); status != 204 {
			t.Fatal(status, text)
		}
	}
	_, text := s.ask("GET", "/nodes/n1", nil)
	for _, want := range []string{`<rect class="fine" x="10" width="30" height="10"><title>from 1.0 s to 4.0 s<`, `<rect class="broken" x="40" width="2"`, "no route to registry",
		`<rect class="fine" x="40" width="960"`, "812.0 MB fetched", `x="998" width="2"`, "<td class=\"number\">96.0 s</td>"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if _, text := s.ask("GET", "/nodes/n2", nil); strings.Contains(text, "<h2>Boot") {
		t.Error("a chart of nothing")
	}
	var got query.Node
	if _, text := s.ask("GET", "/v1/nodes/n1", nil); json.Unmarshal([]byte(text), &got) != nil || len(got.Report.Boot) != 4 || got.Report.Boot[2].Bytes.Fetched != 812_000_000 {
		t.Errorf("%s", text)
	}
}
