// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	texttemplate "text/template"
	"time"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// site is a service over a fleet, reached by HTTP.
type site struct {
	testing.TB
	db        *store.Store
	hub       *hub.Hub
	stop      func() // the hub
	server    *Server
	url       string
	tokens    map[people.Role]string
	tokenFile string

	withTokens bool
	rollouts   []rollout.State
	clock      func() time.Time // nil is time.Now
}

const layer = "sha256:00000000000000000000000000000000000000000000000000000000000000aa"

// newSite starts a service for a fleet of these nodes.
func newSite(t testing.TB, rows index.Rows, withTokens bool) *site {
	t.Helper()
	return newSiteWith(t, rows, withTokens)
}

func newSiteWith(t testing.TB, rows index.Rows, withTokens bool, rollouts ...rollout.State) *site {
	t.Helper()
	return newSiteOver(t, store.Change{}, rows, func(s *site) { s.withTokens, s.rollouts = withTokens, rollouts })
}

// newSiteOver starts a service over a database that has something already.
func newSiteOver(t testing.TB, had store.Change, rows index.Rows, change ...func(*site)) *site {
	t.Helper()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "fleet.db"))
	if err != nil {
		t.Fatal(err)
	}
	if had.Nodes != nil {
		if err := errors.Join(db.Write(t.Context()), db.Apply(t.Context(), had)); err != nil {
			t.Fatal(err)
		}
	}
	s := &site{TB: t, db: db, tokens: map[people.Role]string{}}
	for _, c := range change {
		c(s)
	}
	s.hub, err = hub.Open(t.Context(), hub.Options{Store: db, Groups: map[string]int{"default": 1}, Say: t.Logf, Now: s.clock,
		Index: func(context.Context, string) (hub.Published, error) {
			return hub.Published{Fleet: "metal", Floor: spec.Floor{Generation: 7}, SignedBy: []string{"kim", "<b>"}, Root: "r", Rows: rows, Rollouts: s.rollouts}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.run()
	o := Options{Fleet: query.Fleet{Hub: s.hub}, Hosts: []string{"127.0.0.1"}, Registry: "registry.example/metal", Version: "1", Say: t.Logf,
		Names: func() query.Names {
			return query.Names{Site: "site.yaml", Verifies: "--site site.yaml", Signs: "--key keys/operator.key"}
		}}
	if s.withTokens {
		s.tokenFile = filepath.Join(t.TempDir(), "tokens")
		for _, role := range []people.Role{people.Reader, people.Reporter, people.Operator, people.Drain} {
			if s.tokens[role], err = people.AddToken(s.tokenFile, "a-"+string(role), role); err != nil {
				t.Fatal(err)
			}
		}
		if o.Tokens, err = people.OpenTokens(s.tokenFile); err != nil {
			t.Fatal(err)
		}
	}
	if s.server, err = New(ctx, o); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.server)
	s.url = server.URL
	t.Cleanup(func() {
		cancel()
		server.Close()
		s.stop()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// run has the hub work until stop, which waits until it has ended.
func (s *site) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.hub.Run(ctx) }()
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
	}
}

func rowsOf(names ...string) index.Rows {
	rows := index.Rows{}
	for _, n := range names {
		rows[n] = spec.Published{Overlay: other(1), Layer: layer, Generation: 7}
	}
	return rows
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func keyID(key *ecdsa.PrivateKey) string { return sign.VerifierOf(key).ID() }

// sealed is a report of a node, changed as a test likes.
func sealed(t testing.TB, key *ecdsa.PrivateKey, node string, seq uint64, change func(*spec.Report)) []byte {
	t.Helper()
	one := spec.NewReport(&spec.Status{Fleet: "metal", Node: node, BootID: "b", Mode: spec.ModeNetboot, Health: spec.HealthOK, Sync: spec.SyncCurrent, Tracking: spec.Following, Activity: spec.ActivityIdle, Generation: 7,
		Overlay: other(1), Layer: layer, LayerVersion: "12.1", Agent: "0.9", Items: []spec.ItemStatus{{Name: "sysctl", State: spec.ItemOK, Applied: 40}}})
	one.Key, one.Grade, one.Seq, one.Interval = sign.VerifierOf(key).ID(), spec.KeyPinned, seq, 300
	if change != nil {
		change(one)
	}
	data, err := one.Encode()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := sign.SignReport(key, data)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// take has the hub take a report, past the network.
func (s *site) take(ctx context.Context, raw []byte) error {
	r, err := s.hub.Open(raw)
	if err != nil {
		return err
	}
	return s.hub.Take(ctx, r, raw, "")
}

// ask makes a request and returns the status and the body.
func (s *site) ask(method, path string, body []byte, headers ...string) (int, string) {
	s.Helper()
	req, err := http.NewRequest(method, s.url+path, bytes.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func (s *site) bearer(r people.Role) string { return "Bearer " + s.tokens[r] }

// TestRoles asks for everything as everybody: the table of routes is the rule.
func TestRoles(t *testing.T) {
	s := newSite(t, rowsOf("n1"), true)
	in := map[people.Role]map[people.Role]bool{people.Nobody: {people.Nobody: true}, people.Reader: {people.Nobody: true, people.Reader: true}, people.Reporter: {people.Nobody: true, people.Reporter: true}, people.Operator: {people.Nobody: true, people.Reader: true, people.Operator: true}, people.Drain: {people.Nobody: true, people.Reader: true, people.Drain: true}}
	for _, r := range (&Server{}).routes() {
		method, path, _ := strings.Cut(r.pattern, " ")
		path = strings.NewReplacer("{$}", "", "{node}", "n1", "{group}", "default").Replace(path)
		for who, may := range in {
			if path == "/v1/events" && may[r.role] {
				continue // it does not end; see TestEvents
			}
			headers := []string{}
			if who != people.Nobody {
				headers = append(headers, "Authorization", s.bearer(who))
			}
			status, text := s.ask(method, path, nil, headers...)
			refused := status == http.StatusUnauthorized || status == http.StatusForbidden && !strings.Contains(text, "not known here") && !strings.Contains(text, "unproven")
			if refused == may[r.role] || status == http.StatusTooManyRequests {
				t.Errorf("%s as %q: %d %.80s", r.pattern, who, status, text)
			}
		}
	}
}

func TestReport(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	key := newKey(t)
	for what, c := range map[string]struct {
		raw  []byte
		want int
	}{
		"a report":     {sealed(t, key, "n1", 1, nil), 204},
		"large":        {bytes.Repeat([]byte("x"), sign.MaxReport+1), 413},
		"nonsense":     {[]byte("{"), 409},
		"another node": {sealed(t, key, "n2", 1, nil), 409},
	} {
		if status, text := s.ask("POST", "/v1/report", c.raw); status != c.want {
			t.Errorf("%s: %d %s", what, status, text)
		}
	}
	if status, text := s.ask("GET", "/v1/nodes/n1", nil); status != 200 || !strings.Contains(text, `"condition":"fine"`) {
		t.Errorf("%d %s", status, text)
	}
	if status, _ := s.ask("GET", "/v1/nodes/n9", nil); status != 404 {
		t.Errorf("a node there is not: %d", status)
	}
}

// TestNamesOfOthers: a page of the web whose name leads here by now (DNS rebinding) gets
// nothing, and posts nothing.
func TestNamesOfOthers(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	port := s.url[strings.LastIndex(s.url, ":"):]
	for host, want := range map[string]int{"evil.example": 421, "evil.example" + port: 421, "127.0.0.1.evil.example": 421, "127.0.0.1" + port: 200, "127.0.0.1": 200, "localhost": 421} {
		for _, path := range []string{"/", "/v1/summary", "/metrics", "/healthz", "/static/page.js"} {
			if status, _ := s.ask("GET", path, nil, "Host", host); status != want {
				t.Errorf("%s of %s: %d, want %d", path, host, status, want)
			}
		}
	}
}

// TestCrossSite: what changes something is not done for the page of another site, cookie
// or not, and the cookie is not for scripts.
func TestCrossSite(t *testing.T) {
	s := newSite(t, rowsOf("n1"), true)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.PostForm(s.url+"/login", url.Values{"token": {s.tokens[people.Operator]}, "to": {"//evil.example/"}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 303 || resp.Header.Get("Location") != "/" {
		t.Errorf("log in: %d to %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	c := resp.Header.Get("Set-Cookie")
	if !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "SameSite=Strict") || strings.Contains(c, s.tokens[people.Operator]) {
		t.Errorf("cookie %q", c)
	}
	for what, c := range map[string]struct {
		header, value string
		want          int
	}{
		"another site":     {"Sec-Fetch-Site", "cross-site", 403},
		"a neighbour":      {"Sec-Fetch-Site", "same-site", 403},
		"another's origin": {"Origin", "https://evil.example", 403},
		"our own page":     {"Sec-Fetch-Site", "same-origin", 409}, // there is nothing to accept
	} {
		req, err := http.NewRequest("POST", s.url+"/v1/nodes/n1/accept", strings.NewReader("a key"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(c.header, c.value)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", what, resp.StatusCode, c.want)
		}
	}
	// Who logs out is out, though somebody kept the cookie.
	kept := jar.Cookies(mustURL(t, s.url))
	resp, err = client.Post(s.url+"/logout", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if status, _ := s.ask("GET", "/v1/summary", nil, "Cookie", kept[0].String()); status != 401 {
		t.Errorf("a cookie after logging out: %d", status)
	}
}

func mustURL(t *testing.T, text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestTokensInAddresses(t *testing.T) {
	s := newSite(t, rowsOf("n1"), true)
	for _, query := range []string{"?token=x", "?access_token=" + s.tokens[people.Reader], "?q=" + s.tokens[people.Reader], "?Authorization=x"} {
		if status, text := s.ask("GET", "/v1/nodes"+query, nil, "Authorization", s.bearer(people.Reader)); status != 400 || !strings.Contains(text, "token-in-url") {
			t.Errorf("%s: %d %s", query, status, text)
		}
	}
}

func TestGuessing(t *testing.T) {
	s := newSite(t, rowsOf("n1"), true)
	s.atOnce()
	last := 0
	for range 11 {
		last, _ = s.ask("GET", "/v1/summary", nil, "Authorization", "Bearer wrong")
	}
	if last != 429 {
		t.Errorf("after ten wrong tokens: %d", last)
	}
	if status, _ := s.ask("GET", "/v1/summary", nil, "Authorization", s.bearer(people.Reader)); status != 200 {
		t.Errorf("the right one: %d", status)
	}
}

// proof is a request for a slot that a node signed.
func proof(t *testing.T, key *ecdsa.PrivateKey, change func(*spec.SlotRequest)) string {
	t.Helper()
	r := spec.SlotRequest{APIVersion: spec.APIVersion, Kind: spec.KindSlotRequest, Fleet: "metal", Node: "n1", Key: sign.VerifierOf(key).ID(), Group: "default", Act: "pre-reboot", BootID: "b", Time: time.Now().UTC()}
	if change != nil {
		change(&r)
	}
	data, err := spec.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := sign.SignReport(key, data)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// TestFleetLock: a slot is for who proves to be the node, and is given back by it.
func TestFleetLock(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n2"), false)
	k1, k2 := newKey(t), newKey(t)
	for node, key := range map[string]*ecdsa.PrivateKey{"n1": k1, "n2": k2} {
		if status, text := s.ask("POST", "/v1/report", sealed(t, key, node, 1, nil)); status != 204 {
			t.Fatal(status, text)
		}
	}
	lock := func(act, id, proof string, more ...string) (int, string) {
		headers := append([]string{"fleet-lock-protocol", "true"}, more...)
		if proof != "" {
			headers = append(headers, ProofHeader, proof)
		}
		return s.ask("POST", "/v1/"+act, fmt.Appendf(nil, `{"client_params":{"id":%q,"group":"default"}}`, id), headers...)
	}
	at := func(act, node string) func(*spec.SlotRequest) {
		return func(r *spec.SlotRequest) { r.Act, r.Node = act, node }
	}
	for _, c := range []struct {
		what, act, id, proof string
		want                 int
		kind                 string
	}{
		{"without proof", "pre-reboot", "n1", "", 403, "unproven"},
		{"a report as proof", "pre-reboot", "n1", base64.StdEncoding.EncodeToString(sealed(t, k1, "n1", 2, nil)), 403, "unproven"},
		{"another's proof", "pre-reboot", "n1", proof(t, k2, nil), 403, "unproven"},
		{"an old proof", "pre-reboot", "n1", proof(t, k1, func(r *spec.SlotRequest) { r.Time = r.Time.Add(-time.Hour) }), 403, "unproven"},
		{"a proof of the boot before", "pre-reboot", "n1", proof(t, k1, func(r *spec.SlotRequest) { r.BootID = "a" }), 403, "unproven"},
		{"a proof of another act", "steady-state", "n1", proof(t, k1, nil), 403, "unproven"},
		{"a proof of another fleet", "pre-reboot", "n1", proof(t, k1, func(r *spec.SlotRequest) { r.Fleet = "x" }), 403, "unproven"},
		{"n1 takes it", "pre-reboot", "n1", proof(t, k1, nil), 200, ""},
		{"n1 takes it again", "pre-reboot", "n1", proof(t, k1, nil), 200, ""},
		{"n2 waits", "pre-reboot", "n2", proof(t, k2, at("pre-reboot", "n2")), 409, "all_slots_full"},
		{"n2 frees it", "steady-state", "n1", proof(t, k2, at("steady-state", "n1")), 403, "unproven"},
		{"n2 says that it is n1", "steady-state", "n1", proof(t, k2, at("steady-state", "n2")), 403, "unproven"},
		{"n1 frees it", "steady-state", "n1", proof(t, k1, at("steady-state", "n1")), 200, ""},
		{"n2 takes it", "pre-reboot", "n2", proof(t, k2, at("pre-reboot", "n2")), 200, ""},
	} {
		status, text := lock(c.act, c.id, c.proof)
		var p problem
		if err := json.Unmarshal([]byte(text), &p); err != nil || status != c.want || p.Kind != c.kind {
			t.Errorf("%s: %d %s, want %d %s", c.what, status, text, c.want, c.kind)
		}
	}
	if status, text := s.ask("POST", "/v1/pre-reboot", []byte(`{"client_params":{"id":"n1","group":"default"}}`)); status != 400 || !strings.Contains(text, "no_protocol") {
		t.Errorf("without the header: %d %s", status, text)
	}
	if status, text := s.ask("GET", "/v1/slots", nil); status != 200 || !strings.Contains(text, `"node":"n2"`) {
		t.Errorf("%d %s", status, text)
	}
}

// TestMetrics: what is exported is what Prometheus' own tool can read.
func TestMetrics(t *testing.T) {
	s := newSite(t, rowsOf("n1", "n2"), false)
	if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), "n1", 1, func(r *spec.Report) { r.LayerVersion = "a\"b\\c\n\xff" })); status != 204 {
		t.Fatal(status, text)
	}
	_, text := s.ask("GET", "/metrics", nil)
	for _, want := range []string{`caisson_fleet_nodes{condition="fine"} 1`, `caisson_fleet_nodes{condition="never"} 1`, `caisson_fleet_reports_total{result="taken"} 1`, `version="a\"b\\c; ?"`, "caisson_fleet_generation 7"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	checkMetrics(t, text)
}

// checkMetrics has promtool read what is exported.
func checkMetrics(t *testing.T, text string) {
	t.Helper()
	require.Tool(t, "promtool")
	c := exec.Command("promtool", "check", "metrics")
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// TestOpenAPI: every route of the API is described, and what is described is there.
func TestOpenAPI(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	status, text := s.ask("GET", "/openapi.json", nil)
	var doc struct {
		OpenAPI string                               `json:"openapi"`
		Paths   map[string]map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil || status != 200 || doc.OpenAPI != "3.1.0" {
		t.Fatal(status, err)
	}
	for _, r := range (&Server{}).routes() {
		method, path, _ := strings.Cut(r.pattern, " ")
		if described := doc.Paths[path][strings.ToLower(method)] != nil; described != (r.says != "") {
			t.Errorf("%s: described %v", r.pattern, described)
		}
	}
	if !strings.Contains(text, `"reasons"`) || !strings.Contains(text, `"nextWindow"`) {
		t.Error("answers are not described")
	}
}

// TestEvents: a browser that listens is told of a report.
func TestEvents(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", s.url+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), "n1", 1, nil)); status != 204 {
		t.Fatal(status, text)
	}
	var got []byte
	for b := make([]byte, 256); !bytes.Contains(got, []byte("event: change\n")); {
		n, err := resp.Body.Read(b)
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
		got = append(got, b[:n]...)
	}
}

// TestMarkup: markup in whatever a node says is text on every page.
func TestMarkup(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	const bad = `"><script>alert(1)</script><img src=x onerror=alert(1)>'&` + "\u202e"
	axis := spec.Axis{State: bad, Detail: bad, Since: time.Now(), Until: time.Now()}
	raw := sealed(t, newKey(t), "n1", 1, func(r *spec.Report) {
		r.Axes = spec.Axes{Tracking: axis, Sync: axis, Health: axis, Activity: axis}
		r.Agent, r.Mode, r.BootID, r.RootID, r.LayerVersion = bad, bad, bad, bad, bad // layer and overlay are digests
		r.Items = []spec.ItemStatus{{Name: bad, State: bad, Error: bad}}
		r.Drift = []spec.Drift{{Item: bad, Key: bad, From: bad, To: bad, Action: bad, Reason: bad}}
		r.Operations = []spec.OperationStatus{{Name: bad, Type: bad, State: bad, Detail: bad, Next: time.Now()}}
		r.NextWindow = &spec.NextWindow{Name: bad}
		r.Boot = []spec.Step{{Name: bad, Start: 1, Took: 1, Result: bad}}
		r.Pause = &spec.Pause{Reason: bad}
	})
	if status, text := s.ask("POST", "/v1/report", raw); status != 204 {
		t.Fatal(status, text)
	}
	other := sealed(t, newKey(t), "n1", 1, func(r *spec.Report) { r.Axes.Health.State = bad })
	if status, text := s.ask("POST", "/v1/report", other); status != 204 {
		t.Fatal(status, text)
	}
	for _, path := range []string{"/", "/nodes", "/nodes/n1", "/layers", "/slots", "/nodes?q=" + url.QueryEscape(bad), "/nodes/" + url.PathEscape(bad), "/login?to=" + url.QueryEscape(bad), "/v1/summary", "/v1/nodes/n1"} {
		_, text := s.ask("GET", path, nil)
		if len(text) < 100 {
			t.Errorf("%s: %q", path, text)
		}
		if strings.Contains(text, "<script>alert") || strings.Contains(text, "<img src=x") || strings.HasPrefix(path, "/n") && strings.Contains(text, "\u202e") && !strings.Contains(path, "q=") {
			i := max(strings.Index(text, "<script>alert"), strings.Index(text, "<img src=x"), strings.Index(text, "\u202e"))
			t.Errorf("%s has markup of a node: …%s…", path, text[max(0, i-80):min(len(text), i+80)])
		}
	}
	// With templates that escape nothing, the same strings are markup on each page.
	plain, err := texttemplate.New("").Funcs(s.server.words()).ParseFS(files, "page/*.html")
	if err != nil {
		t.Fatal(err)
	}
	s.server.pages = plain
	for _, path := range []string{"/", "/nodes", "/nodes/n1", "/layers", "/login?to=/" + url.QueryEscape(bad)} {
		if _, text := s.ask("GET", path, nil); !strings.Contains(text, "<script>alert") {
			t.Errorf("%s shows nothing of what a node says: the test is for nothing", path)
		}
	}
}

// TestHeaders: no page may be framed, nor run what is not this service's own.
func TestHeaders(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	for _, path := range []string{"/", "/nodes/n1", "/v1/summary", "/static/page.js", "/none"} {
		resp, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		csp := resp.Header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") || resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, resp.Header)
		}
	}
}
