// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/fleet/service"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/plan"
)

var (
	copied = regexp.MustCompile(`data-copy="([^"]*)"`)
	inCode = regexp.MustCompile(`<code>(caisson[^<]*)</code>`)
)

// TestWhatPagesOfferToCopyRuns: each command on the pages of a fleet in trouble is one
// that the command line takes, and does what it says at the registry of that fleet.
func TestWhatPagesOfferToCopyRuns(t *testing.T) {
	agent, err := os.ReadFile("../../docs/cli/caisson-agent.md") // a test of the agent holds it to its verbs
	if err != nil {
		t.Fatal(err)
	}
	s := newShelf(t)
	at, token := servePages(t, s)
	seen := map[string]bool{}
	for _, path := range []string{"/", "/nodes", "/nodes?condition=behind", "/nodes?sync=current&q=b&sort=-name", "/nodes/a", "/nodes/b", "/nodes/c", "/layers", "/services", "/generations", "/generations/2", "/generations/between?node=b&beside=c", "/generations/1..?node=a", "/rollouts", "/slots", "/unknown", "/replace/a", "/audit", "/login"} {
		page := getPage(t, at+path, token)
		texts := inCode.FindAllStringSubmatch(page, -1)
		offers := copied.FindAllStringSubmatch(page, -1)
		if n := strings.Count(page, "data-copy"); n != len(offers) {
			t.Errorf("%s: %d commands to copy, %d are read", path, n, len(offers))
		}
		for _, m := range append(offers, texts...) {
			seen[html.UnescapeString(m[1])] = true
		}
	}
	verbs := map[string]bool{}
	for _, command := range slices.Sorted(maps.Keys(seen)) {
		if !strings.Contains(command, " ") { // the names of a list
			continue
		}
		if strings.HasPrefix(command, "- {name: ") { // rows of the inventory
			continue
		}
		if kind, _, _ := strings.Cut(command, " "); strings.HasSuffix(kind, ":") { // a line of a site
			if err := os.WriteFile("kept.yaml", []byte("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: test}\nnodes: [{name: a}]\nconf:\n  "+command+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := s.run("validate", "kept.yaml"); err != nil {
				t.Errorf("%q: %v\n%s", command, err, out)
			}
			continue
		}
		words := shellWords(t, command)
		if words[0] == "ssh" {
			command = strings.Join(words[3:], " ") // after the node's name and sudo
			if !strings.Contains(string(agent), "### "+command+"\n") {
				t.Errorf("%q: the agent has no such verb", command)
			}
			continue
		}
		c, _, err := taken(words[1:])
		if err != nil {
			t.Errorf("%q: %v", command, err)
			continue
		}
		verb := c.CommandPath()
		verbs[verb] = true
		if strings.HasPrefix(verb, "caisson rollout") || verb == "caisson fleet token" {
			continue // of rollouts that are states alone; with names that stand for others
		}
		if out, err := s.run(words[1:]...); err != nil && (verb != "caisson diff" && verb != "caisson fleet status" || cli.Code(err) != cli.ExitDrift) { // layers differ, and a node needs a look
			t.Errorf("%q: %v\n%s", command, err, out)
		}
	}
	want := []string{"caisson diff", "caisson fleet accept", "caisson fleet replace", "caisson fleet slots release", "caisson fleet status", "caisson fleet token", "caisson forward", "caisson freeze", "caisson history",
		"caisson inspect", "caisson pause", "caisson resume", "caisson rollback", "caisson rollout abort", "caisson rollout pause", "caisson rollout resume", "caisson rollout run", "caisson rollout status", "caisson rollout undo"}
	if got := slices.Sorted(maps.Keys(verbs)); !slices.Equal(got, want) {
		t.Errorf("the pages have %q, want %q", got, want)
	}
}

// TestGenerationsOfAFleet: the page and the API tell of generations what the verbs do, also after another
// publish, and who asks first.
func TestGenerationsOfAFleet(t *testing.T) {
	s := newShelf(t)
	at, token := servePages(t, s)
	verb := func(args ...string) string {
		t.Helper()
		out, err := s.run(args...)
		if err != nil && cli.Code(err) != cli.ExitDrift {
			t.Fatal(args, err, out)
		}
		return out
	}
	same := func(path string, args ...string) {
		t.Helper()
		var got, want any
		if err := errors.Join(json.Unmarshal([]byte(getPage(t, at+path, token)), &got), json.Unmarshal([]byte(verb(args...)), &want)); err != nil {
			t.Fatal(path, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, and the verb says %v", path, got, want)
		}
	}
	same("/v1/generations", "history", s.ref, "--site", "site.yaml", "-o", "json")
	same("/v1/generations?node=b", "history", s.ref, "--site", "site.yaml", "--node", "b", "-o", "json")
	var d history.Difference
	var p plan.Plan
	if err := errors.Join(json.Unmarshal([]byte(getPage(t, at+"/v1/generations/1..2", token)), &d), json.Unmarshal([]byte(verb("diff", s.ref, "1", "2", "--site", "site.yaml", "--advisories", "tracker.json", "-o", "json")), &p)); err != nil {
		t.Fatal(err)
	}
	if len(d.Groups) != 1 || d.Nodes != 3 || len(p.Nodes) != 3 || !reflect.DeepEqual(d.Groups[0].Changes, p.Nodes[0].Changes) || !slices.Contains(d.Kinds, history.Kind{Name: "layer", Changes: 3}) {
		t.Errorf("%+v, and the verb says %+v", d, p)
	}
	if len(d.Layers) != 1 || len(d.Layers[0].Advisories) != 1 || !reflect.DeepEqual(d.Layers, p.Layers) {
		t.Errorf("%+v, and the verb says %+v: %+v", d.Layers, p.Layers, p.Nodes[0].Changes)
	}
	page := getPage(t, at+"/generations", token)
	for _, want := range []string{`<a href="/generations/0-4">0-4</a>`, "pause: hold 1", "freeze: hold 1", "publish: ", "operator</td>", "wait</td>"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
}

// TestStatusOfANode: the command line shows what the node's page does, and its exit code
// says whether somebody should look.
func TestStatusOfANode(t *testing.T) {
	s := newShelf(t)
	at, _ := servePages(t, s)
	ask := func(code int, args ...string) string {
		t.Helper()
		out, err := s.run(append([]string{"fleet", "status", "--at", at, "--token-file", "token"}, args...)...)
		if cli.Code(err) != code {
			t.Errorf("%q: %v, want exit code %d\n%s", args, err, code, out)
		}
		return out
	}
	if out := ask(3, "a"); !strings.Contains(out, "a: other-key, ") || !strings.Contains(out, "other key  ") || !strings.Contains(out, "slot       default since ") {
		t.Error(out)
	}
	if out := ask(0, "b"); !strings.Contains(out, "held       freeze by ") || !strings.Contains(out, "published  generation ") {
		t.Error(out)
	}
	out := ask(0, "c")
	const date = `20..-..-..T..:..:..Z`
	for _, want := range []string{"^c: behind, ", `  sysctl vm.swappiness  wanted "10", found "60": quarantine after 5 corrections, by tuned, since ` + date, "  scrub  done +it took 3 min\n",
		"  activity   waiting:window, since " + date + ", until " + date + "\n", "  web  sent what was not read  reports 2222\n", "  key        .*=, pinned, counts since "} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if out := ask(3); !strings.Contains(out, "3 nodes, 1 to look at") {
		t.Error(out)
	}
	if out := ask(3, "--sort", "name"); !strings.HasPrefix(out, "a  other-key") || strings.Count(out, "\n") != 3 {
		t.Error(out)
	}
	if out := ask(3, "--condition", "trouble"); !strings.HasPrefix(out, "a ") || strings.Count(out, "\n") != 1 {
		t.Error(out)
	}
	for want, args := range map[string][]string{
		"unknown condition":     {"--condition", "sick"},
		"unknown order":         {"--sort", "worst"},
		"do not go together":    {"c", "--health", "ok"},
		"the fleet has no such": {"zz"},
		"started without one":   {"--label", "rack=r1"},
		"--health is empty":     {"--health", ""},
		"an argument too many":  {"a", "b"},
		"is not a digest":       {"--layer", "current"},
	} {
		out, err := s.run(append([]string{"fleet", "status", "--at", at, "--token-file", "token"}, args...)...)
		if cli.Code(err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}

// shellWords returns what a shell makes of a command.
func shellWords(t *testing.T, command string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\n' `+command).Output()
	if err != nil {
		t.Fatal(command, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

func getPage(t *testing.T, at, token string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // only read
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(at, resp.Status, err, string(text))
	}
	return string(text)
}

// servePages publishes three nodes and serves their pages: another key reports for a,
// which holds a slot; b is frozen; c is paused and runs another layer; and there are rollouts in each
// phase. The present directory has the site and the operator's key.
func servePages(t *testing.T, s *shelf) (at, token string) {
	t.Helper()
	t.Chdir(t.TempDir())
	do := func(args ...string) {
		t.Helper()
		if out, err := s.run(args...); err != nil {
			t.Fatal(args, err, out)
		}
	}
	do("keys", "generate", filepath.Join("keys", "operator"))
	for name, text := range map[string]string{"keys/release.pub": string(sign.VerifierOf(s.release).PEM()),
		"site.yaml": "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: test}\nlayer: {base: {debian: {suite: trixie}}}\ntrust: {keys: {operator: keys/operator.pub, release: keys/release.pub}}\nnodes: [{name: a}, {name: b}, {name: c}]\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one := s.put("1", "2026-01-01T00:00:00Z", map[string]string{"a": "x"}, "bash=5")
	do("publish", "site.yaml", "--layer", one, "--to", s.ref, "--key", "keys/operator.key")
	two := s.put("2", "2026-01-02T00:00:00Z", map[string]string{"a": "y"}, "bash=6")
	do("publish", "site.yaml", "--layer", two, "--to", s.ref, "--key", "keys/operator.key")
	do("freeze", s.ref, "--node", "b", "--reason", "wait", "--key", "keys/operator.key")
	do("pause", s.ref, "--node", "c", "--reason", "wait", "--key", "keys/operator.key")

	var talk bytes.Buffer
	a, v := newApp(&talk, &talk), &serving{from: s.ref}
	v.look.whom.site = []string{"site.yaml"}
	reads := v.reader(a)
	index := reads.Index
	db, err := store.Open(t.Context(), "sqlite:fleet.db")
	if err != nil {
		t.Fatal(err)
	}
	h, err := hub.Open(t.Context(), hub.Options{Store: db, Groups: map[string]int{"default": 1}, Say: t.Logf, Index: func(ctx context.Context, known string) (hub.Published, error) {
		p, err := index(ctx, known)
		for _, phase := range []string{spec.RolloutRunning, spec.RolloutPaused, spec.RolloutHalted, spec.RolloutDone} {
			plan := &spec.RolloutPlan{Name: phase, Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"a": "x"}}}}
			p.Rollouts = append(p.Rollouts, rollout.StateOf(plan, spec.Rollout{Phase: phase, Waves: []spec.RolloutWave{{}}}))
		}
		return p, err
	}})
	if err != nil {
		t.Fatal(err, talk.String())
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	key := func() *ecdsa.PrivateKey {
		k, err := sign.Generate()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for _, r := range []struct {
		node, layer string
		key         *ecdsa.PrivateKey
	}{{"a", two, key()}, {"a", two, key()}, {"b", two, key()}, {"c", one, key()}} {
		report := spec.NewReport(&spec.Status{Fleet: "test", Node: r.node, BootID: "b", Mode: spec.ModeNetboot, Health: spec.HealthOK, Sync: spec.SyncCurrent,
			Tracking: spec.Following, Activity: spec.ActivityIdle, Generation: 1, Layer: r.layer, LayerVersion: "1", Agent: "1"})
		report.Key, report.Grade, report.Seq, report.Interval = sign.VerifierOf(r.key).ID(), spec.KeyPinned, 1, 300
		if r.node == "c" {
			report.Time = time.Now().UTC()
			began := report.Time.Add(-time.Minute)
			report.Drift = []spec.Drift{{Item: "sysctl", Key: "vm.swappiness", From: "60", To: "10", Action: spec.ActionQuarantine, Count: 5, Rival: "tuned", Since: began}}
			report.Operations = []spec.OperationStatus{{Name: "scrub", State: "done", Detail: "it took 3 min"}}
			report.Axes.Activity = spec.Axis{State: "waiting:window", Since: began, Until: began.Add(time.Hour)}
			report.Services = map[string]string{"web": "2222"}
		}
		data, err := report.Encode()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := sign.SignReport(r.key, data)
		var opened *spec.Report
		if err == nil {
			opened, err = h.Open(raw)
		}
		if err == nil {
			err = h.Take(t.Context(), opened, raw, "")
		}
		if err != nil {
			t.Fatal(r.node, err)
		}
	}
	if err := h.TakeSlot(t.Context(), "default", "a", hub.Proof{}); err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct {
		file, name string
		role       people.Role
	}{{"reader", "kim", people.Reader}, {"token", "eve", people.Operator}} {
		if token, err = people.AddToken("tokens", of.name, of.role); err == nil {
			err = os.WriteFile(of.file, []byte(token), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	tokens, err := people.OpenTokens("tokens")
	if err != nil {
		t.Fatal(err)
	}
	past := history.NewPast(ctx, reads.Published, func() (map[string]string, error) { return v.look.whom.names(a) })
	if err := os.WriteFile("tracker.json", []byte(`{"x": {"CVE-2026-0001": {"releases": {"trixie": {"status": "open", "urgency": "low"}}}}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if past.By, err = advisoryFlag("tracker.json").layers([]string{"site.yaml"}); err != nil {
		t.Fatal(err)
	}
	handler, err := server.New(ctx, server.Options{Fleet: query.Fleet{Hub: h}, Names: v.names, Layers: service.NewLayers(reads.Layer), Past: past, Tokens: tokens, Hosts: []string{"127.0.0.1"}, Registry: s.ref, Version: "1", Say: t.Logf,
		Unknown: func() ([]unknown.Machine, error) {
			return []unknown.Machine{{From: "192.0.2.1", Names: []string{"a"}, MACs: []string{"52:54:00:00:00:11"}, UUIDs: []string{"11111111-2222-3333-4444-555555555555"}, Last: time.Now()}}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	service := httptest.NewServer(handler)
	t.Cleanup(func() {
		service.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"CAISSON_FLEET", "CAISSON_FLEET_TOKEN_FILE"} { // what is pasted says all that it takes
		t.Setenv(name, "")
	}
	return service.URL, token
}

// TestCommandsNameTheKeysThatCountNow: from another directory, of as many keys as sign, and of those
// that the site has when it has changed.
func TestCommandsNameTheKeysThatCountNow(t *testing.T) {
	t.Chdir(t.TempDir())
	away, s := t.TempDir(), newShelf(t)
	for _, name := range []string{filepath.Join(away, "keys/one"), filepath.Join(away, "keys/it's two"), filepath.Join(away, "keys/three"), "here"} {
		if out, err := s.run("keys", "generate", name); err != nil {
			t.Fatal(err, out)
		}
	}
	file := filepath.Join(away, "site.yaml")
	trusts := func(keys string) {
		t.Helper()
		text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: test}\ntrust: {threshold: 2, keys: {operator: [" + keys + "]}}\nnodes: [{name: a}]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trusts(`keys/one.pub, "keys/it's two.pub", keys/three.pub`)
	var talk bytes.Buffer
	a, v := newApp(&talk, &talk), &serving{}
	v.look.whom.site = []string{file}
	if err := v.follow(a); err != nil {
		t.Fatal(err, talk.String())
	}
	want := query.Names{Site: "site.yaml", Verifies: "--site site.yaml", Signs: `--key keys/one.key --key 'keys/it'\''s two.key'`}
	if got := v.names(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	here, err := filepath.Abs("here")
	if err != nil {
		t.Fatal(err)
	}
	trusts("keys/three.pub, " + here + ".pub")
	again := make(chan struct{}, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go v.Site.Keep(ctx, time.Millisecond, func(string, ...any) { again <- struct{}{} })
	select {
	case <-again:
	case <-ctx.Done():
		t.Fatal("the site is not read again")
	}
	want.Signs = "--key keys/three.key --key " + here + ".key"
	if got := v.names(); got != want {
		t.Errorf("after a change: %+v, want %+v", got, want)
	}
	v.Site, v.look.whom = nil, trustFlags{keys: []string{"keys/a b.pub", "x.pub"}}
	if got := v.names(); got != (query.Names{Verifies: "--trust 'keys/a b.pub' --trust x.pub", Signs: "--key 'keys/a b.key' --key x.key"}) {
		t.Errorf("without a site: %+v", got)
	}
}
