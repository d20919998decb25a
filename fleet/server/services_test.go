// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/spec"
)

const withServices = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: metal}
nodes: [{name: n1}, {name: n2}, {name: n3}]
---
apiVersion: caisson.dev/v1alpha1
kind: NodeService
metadata: {name: web}
spec:
  git: {url: "https://git.example/web.git", branch: main}
  unit: web.service
  directories: [{from: etc, to: /etc/web}]
---
apiVersion: caisson.dev/v1alpha1
kind: NodeService
metadata: {name: unlocked}
spec:
  git: {url: "https://git.example/other.git", tag: v1}
  unit: other.service
  directories: [{from: ., to: /etc/other}]
`

var one, two = strings.Repeat("1", 40), strings.Repeat("2", 40)

// reports sends what nodes say of their services.
func (s *site) reports(services map[string]map[string]string) {
	s.Helper()
	for node, commits := range services {
		if status, text := s.ask("POST", "/v1/report", sealed(s, newKey(s), node, 1, func(r *spec.Report) { r.Services = commits })); status != 204 {
			s.Fatal(status, text)
		}
	}
}

// The site's, the overlays' and the nodes' word stand beside each other.
func TestServices(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n2", "n3"), false)
	s.knows(withServices)
	s.server.o.Sent = sentAll{"web": two}
	s.reports(map[string]map[string]string{"n1": {"web": two}, "n2": {"web": one, "left": one}})
	_, text := s.ask("GET", "/v1/services", nil)
	var got query.Services
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Services) != 3 {
		t.Fatal(err, text)
	}
	web := got.Services[2]
	if said := fmt.Sprint(web.Published, web.Reported); said != fmt.Sprintf("[{%s 3 n1}] [{ 1 n3} {%s 1 n2} {%s 1 n1}]", two, one, two) || web.Differ != 2 {
		t.Errorf("web: %s, %d differ", said, web.Differ)
	}
	if web.Ref != "branch main" || web.Locked != two || web.Frozen == nil || web.Stale != "" || web.Unit != "web.service" {
		t.Errorf("web: %+v", web)
	}
	if left := got.Services[0]; left.Name != "left" || left.Ref != "" || len(left.Reported) != 1 || left.Differ != 0 {
		t.Errorf("of another site: %+v", left)
	}
	if u := got.Services[1]; u.Ref != "tag v1" || u.Locked != "" || u.Published == nil {
		t.Errorf("unlocked: %+v", u)
	}
	if !got.Site || got.Left != 2 || got.Trouble != "" {
		t.Errorf("%+v", got)
	}
	_, text = s.ask("GET", "/metrics", nil)
	for _, want := range []string{`caisson_service_info{service="web",commit="` + two + `"} 1`, `caisson_fleet_service_nodes{service="web",commit=""} 1`,
		`caisson_fleet_service_nodes{service="web",commit="` + one + `"} 1`, `caisson_fleet_service_nodes_differing{service="web"} 2`} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Count(text, "caisson_service_info{") != 1 {
		t.Errorf("what is not locked has a commit: %s", text)
	}
	checkMetrics(t, text)
	_, text = s.ask("GET", "/v1/nodes/n2", nil)
	if want := fmt.Sprintf(`"services":[{"name":"left","reported":"%s","read":true},{"name":"web","published":"%s","reported":"%s","read":true}]`, one, two, one); !strings.Contains(text, want) {
		t.Errorf("no %s in %s", want, text)
	}
	if _, text := s.ask("GET", "/v1/nodes?service=web&commit="+one, nil); !strings.Contains(text, `"name":"n2"`) || !strings.Contains(text, `"all":1`) {
		t.Errorf("nodes at a commit: %s", text)
	}
	if _, text := s.ask("GET", "/nodes?service=web", nil); !strings.Contains(text, "<h1>2 nodes</h1>") {
		t.Errorf("nodes of a service: %s", text)
	}
	// A lock that cannot be read is said, and nothing is said to be locked.
	s.server.o.Site.(*known).wrong = errors.New("services.lock: no such thing")
	if _, text := s.ask("GET", "/services", nil); !strings.Contains(text, "services.lock: no such thing") || strings.Contains(text, "Frozen since") {
		t.Errorf("without a lock: %s", text)
	}
}

// What nodes call their services, and what people write of them, is text.
func TestServicesPage(t *testing.T) {
	const bad = `<script>alert(1)</script>`
	s := newSite(t, rowsOf("n1", "n2"), false)
	s.knows(withServices)
	s.server.o.Sent = sentAll{"web": two}
	s.reports(map[string]map[string]string{"n1": {"web": one, bad: bad}})
	for path, want := range map[string][]string{
		"/services": {"branch main of https://git.example/web.git", "Frozen since", "&lt;i&gt;wait&lt;/i&gt;", `<h2>&lt;script&gt;`, "What 2 nodes were sent is still to be read", "not in the site that",
			`href="/nodes?service=web&amp;commit=` + one, "none: caisson services update"},
		"/nodes/n1": {`<tr class="differs"><td>web</td><td><code title="` + two, `<td>&lt;script&gt;`},
		"/nodes/n2": {`<tr class="differs"><td>web</td>`},
	} {
		status, text := s.ask("GET", path, nil)
		if status != 200 || strings.Contains(text, bad) || strings.Contains(text, "<i>wait") {
			t.Fatal(path, status, text)
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: no %q in\n%s", path, w, text)
			}
		}
	}
}

// Without a site reports are all there is; one node that makes names up does not make
// the list long.
func TestServicesWithoutSite(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n2"), false)
	many := map[string]string{}
	for i := range 40 {
		many[fmt.Sprintf("s%d", i)] = one
	}
	s.reports(map[string]map[string]string{"n1": {"web": two}, "n2": many})
	_, text := s.ask("GET", "/v1/services", nil)
	var got query.Services
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Site || len(got.Services) != 41 || got.Services[40].Differ != 0 {
		t.Fatal(err, text)
	}
	if _, text := s.ask("GET", "/services", nil); !strings.Contains(text, "known only where the service has --site") {
		t.Errorf("%s", text)
	}
}
