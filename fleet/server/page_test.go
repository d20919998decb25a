// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/spec"
)

// acts returns the commands that a page has.
func (s *site) acts(path string, headers ...string) string {
	s.Helper()
	status, text := s.ask("GET", path, nil, headers...)
	if status != http.StatusOK {
		s.Fatal(path, status, text)
	}
	var list []string
	for _, part := range strings.Split(text, `data-copy="`)[1:] {
		command, _, _ := strings.Cut(part, `"`)
		list = append(list, html.UnescapeString(command))
	}
	return strings.Join(list, "\n")
}

// A node's page offers what ends the holds that it has, and no second one of a kind.
func TestActsOfHolds(t *testing.T) {
	rows := rowsOf("free", "frozen", "paused", "both")
	hold := func(name string, kinds ...string) {
		row := rows[name]
		for _, kind := range kinds {
			row.Holds = append(row.Holds, spec.Hold{Kind: kind, Reason: "x", Since: time.Now().Unix()})
		}
		rows[name] = row
	}
	hold("frozen", spec.HoldFreeze)
	hold("paused", spec.HoldPause)
	hold("both", spec.HoldPin, spec.HoldPause)
	s := newSite(t, rows, false)
	for name, want := range map[string]string{"free": "rollback freeze pause", "frozen": "forward pause", "paused": "rollback freeze resume", "both": "forward resume"} {
		var verbs []string
		all := s.acts("/nodes/" + name)
		if !strings.HasPrefix(all, "ssh "+name+" sudo caisson-agent why\n") {
			t.Errorf("%s: what to do does not begin with a look:\n%s", name, all)
		}
		for _, line := range strings.Split(all, "\n") {
			if words := strings.Fields(line); words[0] == "caisson" && words[1] != "history" {
				verbs = append(verbs, words[1])
				if !strings.Contains(line, " --site site.yaml --node "+name+" ") {
					t.Errorf("%s: it knows neither the keys nor what was published: %s", name, line)
				}
			}
		}
		if got := strings.Join(verbs, " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestDriftOfANode: the page has who changed a setting, and since when.
func TestDriftOfANode(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	since := time.Now().Add(-2 * time.Hour).UTC().Truncate(time.Second)
	if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), "n1", 1, func(r *spec.Report) {
		r.Time = since.Add(150 * time.Minute)
		r.Drift = []spec.Drift{{Item: "sysctl", Key: "vm.swappiness", From: "60", To: "10", Action: spec.ActionQuarantine, Since: since, Count: 5, Rival: "tuned <42>"},
			{Item: "sysfs", Key: "/sys/kernel/mm/ksm/run", From: "1", To: "0"}, {Item: "files", Key: "/etc/x", From: "0644", To: "0600"}}
	})); status != 204 {
		t.Fatal(status, text)
	}
	_, text := s.ask("GET", "/nodes/n1", nil)
	for _, want := range []string{`data-is="by">tuned &lt;42&gt;</td>`, `">2 h ago</time></td></tr>`, `<code>sysctl: {vm.swappiness: &#34;60&#34;}</code>`, `data-copy="sysfs: {&#34;/sys/kernel/mm/ksm/run&#34;: &#34;1&#34;}"`, "of an <code>override</code> for this node", "after 5 times", `<th scope="col">By</th><th scope="col">Since</th>`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if n := strings.Count(text, "to keep it: "); n != 2 {
		t.Errorf("%d lines to keep a drift:\n%s", n, text)
	}
}

// Of a node that is not published any more only what the registry still has can go.
func TestActsOfARetiredNode(t *testing.T) {
	verb := func(verb, _ string) string { return verb }
	if got := actsOn(false, nil, verb); len(got) != 1 || got[0].Command != "retire" {
		t.Errorf("%+v", got)
	}
}

// The form of the list offers what there is to ask for.
func TestWordsToAskFor(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n2"), false)
	s.knows(written)
	for name, sync := range map[string]string{"n1": "refused:expired", "n2": "current"} {
		if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), name, 1, func(r *spec.Report) { r.Axes.Sync.State = sync })); status != 204 {
			t.Fatal(status, text)
		}
	}
	_, text := s.ask("GET", "/nodes", nil)
	for _, want := range []string{`<option value="12.1">`, `<option value="ok">`, `<option value="refused:expired">`, `<option value="rack=r2">`, `<option value="role=&lt;b&gt;a&amp;b&lt;/b&gt;">`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for asked, want := range map[string]int{"sync=refused": 1, "sync=refused:expired": 1, "sync=current": 1} {
		var l query.List
		if _, text := s.ask("GET", "/v1/nodes?"+asked, nil); json.Unmarshal([]byte(text), &l) != nil || l.All != want {
			t.Errorf("%s: %s", asked, text)
		}
	}
}

// A mistyped address leads on, and holds no secret: it takes a token like the pages.
func TestNoPage(t *testing.T) {
	s := newSite(t, rowsOf("n1"), true)
	if status, text := s.ask("GET", "/node/n1", nil, "Accept", "text/html", "Authorization", s.bearer(people.Reader)); status != 404 || !strings.Contains(text, `<a href="/">`) {
		t.Errorf("%d %s", status, text)
	}
	if status, text := s.ask("GET", "/v2/nodes", nil, "Authorization", s.bearer(people.Reader)); status != 404 || !strings.Contains(text, "/openapi.json") {
		t.Errorf("%d %s", status, text)
	}
	if status, _ := s.ask("GET", "/node/n1", nil); status != 401 {
		t.Errorf("without a token: %d", status)
	}
}

// The overview says why those are not fine that are not trouble, too: held, behind.
func TestOthersOfTheOverview(t *testing.T) {
	rows := rowsOf("n1", "n2", "n3")
	row := rows["n2"]
	row.Holds = []spec.Hold{{Kind: spec.HoldFreeze, Reason: "disk on order", Author: "eve", Since: time.Now().Unix()}}
	rows["n2"] = row
	s := newSite(t, rows, false)
	for name, change := range map[string]func(*spec.Report){"n2": nil, "n3": func(r *spec.Report) {
		r.Overlay, r.Generation, r.Axes.Activity = other(0), 6, spec.Axis{State: "waiting:window", Detail: "night opens at 01:00"}
	}} {
		if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), name, 1, change)); status != 204 {
			t.Fatal(status, text)
		}
	}
	_, text := s.ask("GET", "/", nil)
	for _, want := range []string{"freeze: disk on order (eve)", "it runs generation 6, 7 is published; waiting:window, night opens at 01:00", "never reported"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if sum := s.server.o.Fleet.Summary(); len(sum.Reasons) != 0 || len(sum.Others) != 3 {
		t.Errorf("%+v, %+v", sum.Reasons, sum.Others)
	}
}

// A node's page has its labels and sets, each a list of the nodes that have it, too.
func TestWhereANodeIs(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n9"), false)
	s.knows(written)
	_, text := s.ask("GET", "/nodes/n1", nil)
	for _, want := range []string{`<a href="/nodes?label=rack%3dr1">rack=r1</a>`, `<a href="/nodes?label=role%3d%3cb%3ea%26b%3c%2fb%3e">role=&lt;b&gt;a&amp;b&lt;/b&gt;</a>`, `<a href="/nodes?set=odd">set odd</a>`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if _, text := s.ask("GET", "/v1/nodes/n1", nil); !strings.Contains(text, `"labels":["rack=r1"`) || !strings.Contains(text, `"sets":["odd"]`) {
		t.Errorf("as JSON: %s", text)
	}
	if _, text := s.ask("GET", "/nodes/n9", nil); strings.Contains(text, `class="tags"`) { // not in the site
		t.Errorf("labels of a node that has none:\n%s", text)
	}
}

// Commands name the address that the operator of the service gave, not what headers of a
// proxy, or of who asks, say.
func TestCommandsNameTheURL(t *testing.T) {
	s := newSite(t, rowsOf("n1"), true)
	key := newKey(t)
	for _, k := range []func(*spec.Report){nil, func(r *spec.Report) { r.BootID = "c" }} {
		if status, text := s.ask("POST", "/v1/report", sealed(t, key, "n1", 1, k), "Authorization", s.bearer(people.Reporter)); status != 204 {
			t.Fatal(status, text)
		}
		key = newKey(t) // another one, to accept
	}
	forged := []string{"Authorization", s.bearer(people.Reader), "Forwarded", "proto=https;host=evil.example", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "evil.example"}
	if got := s.acts("/nodes/n1", forged...); !strings.Contains(got, "caisson fleet accept n1 ") || !strings.Contains(got, " --at "+s.url+" --token-file token") {
		t.Errorf("without a URL:\n%s", got)
	}
	s.server.o.URL, s.server.o.TLS = "https://fleet.example.org", true
	if got := s.acts("/nodes/n1", forged...); !strings.Contains(got, "caisson fleet accept n1 ") || !strings.Contains(got, " --at https://fleet.example.org --token-file token") {
		t.Errorf("with a URL:\n%s", got)
	}
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).PostForm(s.url+"/login", url.Values{"token": {s.tokens[people.Reader]}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if c := resp.Header.Get("Set-Cookie"); !strings.Contains(c, "Secure") {
		t.Errorf("the cookie goes without TLS, too: %s", c)
	}
}
