// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/spec"
)

// TestReportedServices: what a node says stands beside what it was sent; a commit that
// it was not sent, and none, are differences. Each node is asked for once.
func TestReportedServices(t *testing.T) {
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
	asked := map[string]int{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		node := strings.TrimPrefix(req.URL.Path, "/v1/nodes/")
		asked[node]++
		d := hub.Detail{}
		switch node {
		case "a":
			d.Report = spec.NewReport(&spec.Status{Services: []spec.ServiceStatus{{Name: "x", Commit: two}, {Name: "y", Commit: one}}})
		case "b":
			d.Report = spec.NewReport(&spec.Status{Services: []spec.ServiceStatus{{Name: "x", Commit: one}}})
		case "c":
		default:
			t.Errorf("asked for %s", node)
		}
		if err := json.NewEncoder(w).Encode(d); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	out := []serviceDifference{
		{Name: "x", Published: []publishedService{{Commit: two, Nodes: []string{"a", "b", "c"}}}},
		{Name: "y", Published: []publishedService{{Commit: one, Nodes: []string{"a"}}}},
	}
	if err := new(servicesRun).addReported(t.Context(), &asking{at: s.URL}, out); err != nil {
		t.Fatal(err)
	}
	want := []publishedService{{two, []string{"a"}}, {one, []string{"b"}}, {"", []string{"c"}}}
	if !reflect.DeepEqual(out[0].Reported, want) || !out[0].Differs {
		t.Errorf("%+v", out[0])
	}
	if out[1].Differs || len(out[1].Reported) != 1 || out[1].Reported[0].Commit != one {
		t.Errorf("%+v", out[1])
	}
	if !reflect.DeepEqual(asked, map[string]int{"a": 1, "b": 1, "c": 1}) {
		t.Errorf("asked %v", asked)
	}
}
