// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

type troubled struct{ error }

func (t troubled) Trouble() error { return t.error }

// TestUnread: a source that could not be read is said on each page, to programs, and to
// what raises alerts; a source that there is not is none of those.
func TestUnread(t *testing.T) {
	wrong := errors.New("site.yaml:3:1: <b>what")
	for _, c := range []struct {
		site, inbox bool
		is          [2]error
		said        int
		metrics     string
	}{
		{false, false, [2]error{}, 0, "registry=0 database=0"},
		{true, true, [2]error{}, 0, "registry=0 site=0 reports=0 database=0"},
		{true, true, [2]error{wrong, nil}, 1, "registry=0 site=1 reports=0 database=0"},
		{false, true, [2]error{nil, wrong}, 1, "registry=0 reports=1 database=0"},
		{true, true, [2]error{wrong, wrong}, 2, "registry=0 site=1 reports=1 database=0"},
	} {
		s := newSite(t, rowsOf("n1"), false)
		if c.site {
			s.knows(withServices)
			s.server.o.Site.(*known).trouble = c.is[0]
		}
		if c.inbox {
			s.server.o.Inbox = troubled{c.is[1]}
		}
		for _, path := range []string{"/", "/nodes", "/nodes/n1", "/layers", "/services", "/rollouts", "/slots", "/v1/summary"} {
			_, text := s.ask("GET", path, nil)
			if strings.Count(text, "site.yaml:3:1:") != c.said || strings.Contains(text, "<b>what") {
				t.Errorf("%+v: %s:\n%s", c, path, text)
			}
		}
		_, text := s.ask("GET", "/metrics", nil)
		var got []string
		for _, m := range regexp.MustCompile(`(?m)^caisson_fleet_unread\{source="(\w+)"\} (\d)$`).FindAllStringSubmatch(text, -1) {
			got = append(got, m[1]+"="+m[2])
		}
		if strings.Join(got, " ") != c.metrics {
			t.Errorf("%q, want %q", got, c.metrics)
		}
	}
}

// TestTheDatabaseIsAway: what a service is without its database, everybody is told.
func TestTheDatabaseIsAway(t *testing.T) {
	require.Slow(t)
	s := newSite(t, rowsOf("n1"), false)
	s.stop() // the hub alone touches its database
	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
	s.run()
	for end := time.Now().Add(5 * time.Minute); s.hub.Fleet().DatabaseTrouble == ""; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not notice")
		}
	}
	for path, want := range map[string]string{"/": "The database cannot be used", "/nodes": "The database cannot be used", "/slots": "The database cannot be used", "/v1/summary": `"databaseTrouble":"`,
		"/metrics": `source="database"} 1`, "/healthz": "ok"} {
		if status, text := s.ask("GET", path, nil); status != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d, want %q in\n%s", path, status, want, text)
		}
	}
	if _, text := s.ask("GET", "/", nil); strings.Contains(text, "Another instance") {
		t.Error("it names another instance")
	}
	if status, text := s.ask("GET", "/healthz?writer", nil); status != 503 || !strings.Contains(text, `"database"`) {
		t.Errorf("as a writer: %d %s", status, text)
	}
	if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), "n1", 1, nil)); status != 503 || !strings.Contains(text, `"database"`) {
		t.Errorf("a report: %d %s", status, text)
	}
	if status, text := s.ask("GET", "/v1/nodes/n1", nil); status != 503 || !strings.Contains(text, `"database"`) {
		t.Errorf("a node: %d %s", status, text)
	}
}

// TestHealthOfTheWriter: what stands before several instances sees which of them takes reports.
func TestHealthOfTheWriter(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	db, err := store.Open(t.Context(), "sqlite:"+s.db.Place())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() // the test is over
	o := s.server.o
	if o.Hub, err = hub.Open(t.Context(), hub.Options{Store: db, Say: t.Logf, Index: func(context.Context, string) (hub.Published, error) {
		return hub.Published{}, nil
	}}); err != nil {
		t.Fatal(err)
	}
	reader, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path          string
		writes, reads int
	}{{"/healthz", 200, 200}, {"/healthz?writer", 200, 503}} {
		status, _ := s.ask("GET", c.path, nil)
		answer := httptest.NewRecorder()
		reader.ServeHTTP(answer, httptest.NewRequest("GET", "http://127.0.0.1"+c.path, nil))
		if status != c.writes || answer.Code != c.reads || (c.reads == 503) != strings.Contains(answer.Body.String(), `"read-only"`) {
			t.Errorf("%s: %d of the writer, %d of another: %s", c.path, status, answer.Code, answer.Body)
		}
	}
}

// everyMetric is what a service answers that has a site, an inbox, services, reports and slots.
func everyMetric(t *testing.T) string {
	t.Helper()
	plan := &spec.RolloutPlan{Name: "racks", Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"n1": "x"}}}}
	s := newSiteWith(t, rowsOf("n1"), false, rollout.StateOf(plan, spec.Rollout{Phase: spec.RolloutRunning, Waves: []spec.RolloutWave{{}}}))
	s.knows(withServices)
	s.server.o.Inbox, s.server.o.Sent, s.server.o.Heads = troubled{}, sentAll{"web": two}, gitHas{"web": {Commit: two}}
	if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), "n1", 1, nil)); status != 204 {
		t.Fatal(status, text)
	}
	_, text := s.ask("GET", "/metrics", nil)
	return text
}

// TestMetricsTable: docs/fleet-service.md has a row for each metric, with its kind, its
// labels and what it says of itself, and no other row.
func TestMetricsTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/fleet-service.md")
	if err != nil {
		t.Fatal(err)
	}
	text := everyMetric(t)
	var want []string
	for _, m := range regexp.MustCompile(`# HELP (\S+) (.*)\n# TYPE \S+ (\S+)\n(?:\S+?(?:\{(.*)\})? \S+\n)?`).FindAllStringSubmatch(text, -1) {
		var labels []string
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[4], -1) {
			labels = append(labels, "`"+l[1]+"`")
		}
		if len(labels) == 0 {
			labels = []string{"–"}
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s |", m[1], m[3], strings.Join(labels, ", "), m[2]))
	}
	got := regexp.MustCompile("(?m)^\\| `caisson_.*$").FindAllString(string(page), -1)
	if !slices.Equal(got, want) || len(want) < 10 {
		t.Errorf("docs/fleet-service.md has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestAlerts: the example's alerts about a fleet fire for what they say, and ask for
// series that the service has.
func TestAlerts(t *testing.T) {
	const dir = "../../examples/monitoring/"
	rules, err := os.ReadFile(dir + "fleet.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(dir + "fleet.rules.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		if n := strings.Count(string(tests), "alertname: "+m[1]+"\n"); n != 2 {
			t.Errorf("%s has %d tests, not one that fires and one that does not", m[1], n)
		}
	}
	text, series := everyMetric(t), regexp.MustCompile(`caisson_\w+\{\w+`).FindAllString(string(rules), -1)
	for _, name := range series {
		if !strings.Contains(text, "\n"+name+"=") {
			t.Errorf("there is no %s", name)
		}
	}
	if len(series) < 2 {
		t.Errorf("%d series", len(series))
	}
	require.Tool(t, "promtool")
	c := exec.CommandContext(t.Context(), "promtool", "test", "rules", "fleet.rules.test.yml")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
