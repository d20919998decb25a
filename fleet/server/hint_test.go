// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

func hintOf(t *testing.T, node, why string) []byte {
	t.Helper()
	data, err := json.Marshal(spec.NewHint("metal", node, spec.Match{}, why))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestHint: a hint is on the pages and in the answers beside what is proven, and in
// nothing that is decided by.
func TestHint(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n2"), false)
	if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), "n1", 1, nil)); status != 204 {
		t.Fatal(status, text)
	}
	_, before := s.ask("GET", "/v1/reports", nil)
	const why = "registry: <b>refused</b>: expired"
	for _, node := range []string{"n1", "n2"} {
		if status, text := s.ask("POST", "/v1/hint", hintOf(t, node, why)); status != 204 {
			t.Fatal(status, text)
		}
	}
	for path, want := range map[string]int{"/": 2, "/nodes": 2, "/nodes/n1": 1, "/nodes/n2": 1, "/v1/nodes": 2, "/v1/nodes/n1": 1, "/v1/summary": 2} {
		_, text := s.ask("GET", path, nil)
		if n := strings.Count(text, ": expired"); n != want || strings.Contains(text, why) {
			t.Errorf("%s has %d hints, want %d:\n%s", path, n, want, text)
		}
		if !strings.HasPrefix(path, "/v1") && !strings.Contains(strings.ToLower(text), "unproven") {
			t.Errorf("%s does not say what it is:\n%s", path, text)
		}
	}
	if _, after := s.ask("GET", "/v1/reports", nil); after != before {
		t.Errorf("a rollout reads\n%s, and read\n%s", after, before)
	}
	if _, text := s.ask("GET", "/v1/nodes?condition=trouble", nil); strings.Contains(text, "n1") || strings.Contains(text, "n2") {
		t.Error(text)
	}
	if _, text := s.ask("GET", "/metrics", nil); !strings.Contains(text, "\ncaisson_fleet_nodes_hinted 2\n") || !strings.Contains(text, `condition="fine"} 1`) {
		t.Error(text)
	}
}

// TestHintBounds: what is not a hint, is too large or comes too often is not taken; of
// a long one the beginning is kept.
func TestHintBounds(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	for name, c := range map[string]struct {
		body   []byte
		status int
	}{
		"text":              {[]byte("x"), 400},
		"another document":  {[]byte(`{"apiVersion":"caisson.dev/v1alpha1","kind":"Report","fleet":"metal","node":"n1"}`), 400},
		"very large":        {[]byte(`{"why":"` + strings.Repeat("x", spec.MaxHint) + `"}`), 413},
		"of a later loader": {[]byte(`{"apiVersion":"caisson.dev/v1alpha1","kind":"Hint","fleet":"metal","node":"n1","why":"` + strings.Repeat("ö", 900) + `","more":1}`), 204},
		"of nobody":         {hintOf(t, "n9", "x"), 409},
	} {
		if status, text := s.ask("POST", "/v1/hint", c.body); status != c.status {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if _, text := s.ask("GET", "/v1/nodes/n1", nil); strings.Count(text, "ö") != 250 {
		t.Errorf("%s", text)
	}
	s.atOnce()
	last := 0
	for range 40 {
		last, _ = s.ask("POST", "/v1/hint", hintOf(t, "n1", "x"))
	}
	if last != 429 {
		t.Errorf("the fortieth hint: %d", last)
	}
	if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), "n1", 1, nil)); status != 204 {
		t.Errorf("then a report: %d %s", status, text)
	}
}
