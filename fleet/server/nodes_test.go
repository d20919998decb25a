// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec"
	authored "github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/service"
)

// written is a site with labels and sets, some of which look like markup.
const written = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: metal}
nodes:
- {name: n1, labels: {rack: r1, role: "<b>a&b</b>"}}
- {name: n2, labels: {rack: r1}}
- {name: n3, labels: {rack: r2}}
- {name: unpublished, labels: {rack: r1}}
conf: {sysctl: {vm.swappiness: 10}}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeSet
metadata: {name: odd}
spec: {match: {hosts: [n1, n3]}}
`

const lock = `{"apiVersion": "caisson.dev/v1alpha1", "kind": "ServicesLock", "services": {"web": {"url": "https://git.example/web.git", "ref": "branch main", "from": ["etc"],
"commit": "2222222222222222222222222222222222222222", "date": "2026-01-01T00:00:00Z", "image": {"digest": "sha256:0000000000000000000000000000000000000000000000000000000000000000", "size": 1},
"frozen": {"reason": "<i>wait</i>", "author": "eve", "since": "2026-01-02T00:00:00Z"}}}}`

// knows gives a service a site, as fleet serve --site does.
func (s *site) knows(text string) {
	s.Helper()
	read, report := authored.Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}, "services.lock": {Data: []byte(lock)}}, "site.yaml")
	if report.Err() != nil {
		s.Fatal(report.Problems)
	}
	s.server.o.Site = &known{site: read}
}

// known is a site with its lock as the test wants it.
type known struct {
	site    *authored.Site
	wrong   error
	trouble error
}

// sentAll is what every overlay brings.
type sentAll map[string]string

func (s sentAll) Services(string) (map[string]string, bool) { return s, true }
func (s sentAll) Windows(string) (*spec.Maintenance, bool)  { return nil, true }
func (s sentAll) Left() (int, error)                        { return 2, nil }

func (k *known) Trouble() error { return k.trouble }

func (k *known) Having(settings []string) ([]string, error) { return k.site.Having(settings) }

func (k *known) Now() *authored.Site { return k.site }

func (k *known) ServicesLock() (*service.Lock, error) { return k.site.Services().CopyLock(), k.wrong }

func TestNodesByLabelAndSet(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n2", "n3"), false)
	s.knows(written)
	for _, c := range []struct {
		asked url.Values
		want  string
	}{
		{url.Values{"label": {"rack=r1"}}, "n1 n2"},
		{url.Values{"label": {"rack=r1"}, "set": {"odd"}}, "n1"},
		{url.Values{"label": {"rack=r1", "role=<b>a&b</b>"}}, "n1"},
		{url.Values{"set": {"odd"}}, "n1 n3"},
		{url.Values{"set": {"odd"}, "q": {"n3"}}, "n3"},
		{url.Values{"label": {"rack=r1", "rack=r2"}}, ""},                     // each is of some node
		{url.Values{"label": {""}, "set": {""}, "setting": {""}}, "n1 n2 n3"}, // a form that nobody filled in
		{url.Values{"setting": {"sysctl/vm.swappiness=10"}}, "n1 n2 n3"},
		{url.Values{"setting": {"sysctl/vm.swappiness", "labels/rack=r1"}}, "n1 n2"},
		{url.Values{"setting": {"labels/rack=r1"}, "set": {"odd"}}, "n1"},
	} {
		status, text := s.ask("GET", "/v1/nodes?"+c.asked.Encode(), nil)
		var l query.List
		if err := json.Unmarshal([]byte(text), &l); status != 200 || err != nil {
			t.Fatal(status, text)
		}
		var names []string
		for _, n := range l.Nodes {
			names = append(names, n.Name)
		}
		if got := strings.Join(names, " "); got != c.want || l.All != len(names) {
			t.Errorf("%v: %q of %d, want %q", c.asked, got, l.All, c.want)
		}
	}
	many := url.Values{}
	for i := range query.MaxLabels + 1 {
		many.Add("label", fmt.Sprintf("k%d=v", i))
	}
	for asked, want := range map[string]string{
		"label=rack": "is not a label with its value", "label=rack%3Dr9": "did you mean rack=r1?", "label=row%3D1": "known here: rack=r1, rack=r2", "set=od": "did you mean odd?", "set=even": "has no node set",
		"setting=sysctl%2Fvm.swappines": "did you mean sysctl/vm.swappiness?", "setting=sysctl%2Fvm.swappiness%3D7": "there is: ", many.Encode(): "more than 16 labels",
	} {
		if status, text := s.ask("GET", "/v1/nodes?"+asked, nil); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", asked, status, text)
		}
		if status, text := s.ask("GET", "/nodes?"+asked, nil); status != 400 || !strings.Contains(text, want) {
			t.Errorf("page of %s: %d %s", asked, status, text)
		}
	}
}

// TestWrongWords: a word that no node can meet is an error that names the nearest one, and
// an empty list never says that all is well. What somebody chose stays chosen on the page.
func TestWrongWords(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n2"), false)
	s.knows(written)
	if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), "n1", 1, func(r *spec.Report) { r.Axes.Health.State = "of-a-newer-agent" })); status != 204 {
		t.Fatal(status, text)
	}
	for asked, want := range map[string]string{
		"condition=sick": "unknown condition", "condition=brokn": "did you mean broken?", "health=degradd": "did you mean degraded?", "sync=refus": "did you mean refused?",
		"sync=refused:expird": "did you mean expired?", "layer=12.1": "is not a digest", "commit=1": "needs the name of a service", "sort=nam": "did you mean name?", "sort=-drift": "One of: condition, name",
		"differs=perhaps": "1 or 0", "from=x": "is a number", "most=-1": "is a number", "conditon=broken": "did you mean condition?", "racks=1": "one of: q, condition",
	} {
		status, text := s.ask("GET", "/v1/nodes?"+asked, nil)
		var p problem
		if err := json.Unmarshal([]byte(text), &p); status != 400 || err != nil || p.Kind != "query" || !strings.Contains(p.Value+" "+p.Hint, want) {
			t.Errorf("%s: %d %s", asked, status, text)
		}
		if status, text := s.ask("GET", "/nodes?"+asked, nil); status != 400 || !strings.Contains(text, want) || !strings.Contains(text, `role="alert"`) || strings.Contains(text, "0 nodes") {
			t.Errorf("page of %s: %d %s", asked, status, text)
		}
	}
	for asked, want := range map[string]string{"condition=sick": "<option selected>sick</option>", "set=gone": "<option selected>gone</option>", "health=sick": "<option selected>sick</option>"} {
		if _, text := s.ask("GET", "/nodes?"+asked, nil); !strings.Contains(text, want) {
			t.Errorf("%s: no %s in\n%s", asked, want, text)
		}
	}
	for asked, want := range map[string]string{"health=of-a-newer-agent": "", "health=broken": "", "differs=0": "", "layer=abc": "no node runs a layer whose digest begins with abc", "version=12.2": "they run 12.1", "service=web": "no node reports a service web"} {
		status, text := s.ask("GET", "/v1/nodes?"+asked, nil)
		var l query.List
		if err := json.Unmarshal([]byte(text), &l); status != 200 || err != nil || (want == "") != (l.Note == "") || !strings.Contains(l.Note, want) {
			t.Errorf("%s: %d %s", asked, status, text)
		}
		if status, text := s.ask("GET", "/nodes?"+asked, nil); status != 200 || !strings.Contains(text, want) {
			t.Errorf("page of %s: %d %s", asked, status, text)
		}
	}
}

// TestSortedNodes: the worst is first, names are in the order of people, and each column
// leads to the list in its order.
func TestSortedNodes(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n2", "n3", "n10"), false)
	s.knows(written)
	for name, change := range map[string]func(*spec.Report){
		"n2":  func(r *spec.Report) { r.LayerVersion = "9.1" },
		"n3":  func(r *spec.Report) { r.Axes.Health = spec.Axis{State: "broken", Detail: "the gate fails"} },
		"n10": func(r *spec.Report) { r.Generation, r.LayerVersion = 6, "10.1" },
	} {
		if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), name, 1, change)); status != 204 {
			t.Fatal(status, text)
		}
	}
	for sort, want := range map[string]string{"": "n3 n1 n2 n10", "-condition": "n2 n10 n1 n3", "name": "n1 n2 n3 n10", "-name": "n10 n3 n2 n1", "generation": "n1 n10 n2 n3", "layer": "n1 n2 n10 n3"} {
		_, text := s.ask("GET", "/v1/nodes?sort="+sort, nil)
		var l query.List
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(text)
		}
		var names []string
		for _, n := range l.Nodes {
			names = append(names, n.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("sort=%s: %s, want %s", sort, got, want)
		}
		view.Order(sort).Sort(l.Nodes)
		for i, n := range l.Nodes {
			if n.Name != names[i] {
				t.Errorf("sort=%s: a list that is sorted again is another one", sort)
			}
		}
	}
	_, text := s.ask("GET", "/nodes?q=n&sort=name&from=0", nil)
	for _, want := range []string{`aria-sort="ascending"><a href="/nodes?q=n&amp;sort=-name">Node</a>`, `<a href="/nodes?q=n&amp;sort=generation">Generation</a>`, `name="sort" value="name"`, `<a href="/nodes?label=rack%3Dr1&amp;q=n&amp;sort=name">rack=r1</a>`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if _, text := s.ask("GET", "/nodes?label=rack%3Dr1&sort=-name", nil); !strings.Contains(text, `aria-sort="descending"><a href="/nodes?label=rack%3Dr1&amp;sort=name">Node</a>`) || !strings.Contains(text, `<a href="/nodes?label=rack%3Dr1&amp;sort=-name">rack=r1</a>`) {
		t.Error(text)
	}
}

// TestListOfNodes: the address says which columns there are, by which label nodes are counted, and
// which page it is; each link and the form that leads to a page keep the rest of it.
func TestListOfNodes(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n2", "n3", "n4"), false)
	s.knows(written)
	for name, health := range map[string]string{"n1": "ok", "n3": "broken"} {
		if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), name, 1, func(r *spec.Report) { r.Axes.Health.State = health })); status != 204 {
			t.Fatal(status, text)
		}
	}
	_, text := s.ask("GET", "/nodes?sort=-name&most=2&page=2&column=health&column=drift&q=n", nil)
	for _, want := range []string{`<th scope="col">Health</th><th scope="col" class="number">Drift</th></tr>`, `href="/nodes/n2"`, `href="/nodes/n1"`, "of 2</label>", `type="number" name="page" min="1" max="2" value="2"`,
		`<input type="hidden" name="column" value="health"><input type="hidden" name="column" value="drift"><input type="hidden" name="most" value="2"><input type="hidden" name="q" value="n"><input type="hidden" name="sort" value="-name">`,
		`<a href="/nodes?column=health&amp;column=drift&amp;most=2&amp;page=1&amp;q=n&amp;sort=-name" rel="prev">`, `name="column" value="health" checked`, "data-copy=\"n4\nn3\nn2\nn1\"",
		`data-copy="caisson fleet status --limit 4 --search=n --sort=-name --at http://`, `data-copy="caisson freeze registry.example/metal --site site.yaml --node n4 --node n3 --node n2 --node n1 --reason &#34;…&#34; --key keys/operator.key"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "n3</a>") || strings.Contains(text, `rel="next"`) || strings.Contains(text, ">Condition</a>") {
		t.Errorf("what is on another page, or not chosen:\n%s", text)
	}
	_, text = s.ask("GET", "/nodes?group=rack&sort=name", nil)
	for _, want := range []string{`<option selected>rack</option>`, `<a href="/nodes?label=rack%3Dr1&amp;sort=name">r1</a></td><td class="number" data-is="nodes">2</td><td class="number" data-is="need a look">0</td><td class="number" data-is="fine">1</td>`,
		`<span class="faint">without it</span></td><td class="number" data-is="nodes">1</td>`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for asked, want := range map[string]string{"column=heath": "One of: name, condition", "group=rak": "did you mean rack?", "page=0": "from 1 on", "page=x": "from 1 on"} {
		if status, text := s.ask("GET", "/nodes?"+asked, nil); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", asked, status, text)
		}
	}
	for _, asked := range []string{"page=99", "page=99999999999"} {
		if status, text := s.ask("GET", "/nodes?"+asked, nil); status != 200 || !strings.Contains(text, "<h1>4 nodes</h1>") {
			t.Errorf("%s: %d %s", asked, status, text)
		}
	}
}

// TestShellOfAList: what is copied of an address is one word of a shell each.
func TestShellOfAList(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	_, text := s.ask("GET", "/nodes?"+url.Values{"q": {"it's $(x)\n"}}.Encode(), nil)
	if want := `--search=&#39;it&#39;\&#39;&#39;s $(x)`; !strings.Contains(text, want) {
		t.Errorf("no %s in\n%s", want, text)
	}
}

// What an address or the site says is text on the page; a turned page keeps the query.
func TestNodesPageByLabel(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n2", "n3"), false)
	s.knows(written)
	status, text := s.ask("GET", "/nodes?"+url.Values{"label": {"role=<b>a&b</b>"}, "set": {"odd"}}.Encode(), nil)
	if status != 200 || strings.Contains(text, "<b>a&b") {
		t.Fatal(status, text)
	}
	for _, want := range []string{`name="label" value="role=&lt;b&gt;a&amp;b&lt;/b&gt;"`, `<option selected>odd</option>`, `href="/nodes/n1"`, "<h1>1 node</h1>"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if _, text := s.ask("GET", "/nodes?set=%3Cscript%3Ealert(1)%3C/script%3E", nil); strings.Contains(text, "<script>alert") {
		t.Errorf("the name of a set is markup:\n%s", text)
	}
}

// Without a site labels are unknown, and nobody is told that no node has one.
func TestNodesByLabelWithoutSite(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	for _, asked := range []string{"label=rack%3Dr1", "set=odd"} {
		for _, path := range []string{"/v1/nodes?", "/nodes?"} {
			if status, text := s.ask("GET", path+asked, nil); status != 400 || !strings.Contains(text, "this service was started without one") {
				t.Errorf("%s%s: %d %s", path, asked, status, text)
			}
		}
	}
	if status, text := s.ask("GET", "/nodes", nil); status != 200 || strings.Contains(text, `name="label"`) || !strings.Contains(text, "only where the service has --site") {
		t.Errorf("%d\n%s", status, text)
	}
}
