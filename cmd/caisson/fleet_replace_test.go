// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/replace"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/sign"
)

// TestReplaceAMachine: a new operator finds the machine that came by its address, sees what the old one
// has, and is through with two calls; wrong words change nothing.
func TestReplaceAMachine(t *testing.T) {
	s := newShelf(t)
	at, _ := servePages(t, s)
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	id := sign.VerifierOf(key).ID()
	was, err := os.ReadFile("site.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) (string, error) {
		t.Helper()
		return s.run(append([]string{"fleet", "replace", "site.yaml", "a", "--at", at, "--token-file", "token"}, args...)...)
	}
	for _, row := range []struct {
		want string
		args []string
	}{
		{"no unknown machine has asked by", []string{"--machine", "52:54:00:00:00:99"}},
		{"give either --machine or --mac", []string{"--machine", "52:54:00:00:00:11", "--mac", "52:54:00:00:00:11"}},
		{"--same-disk says that both keys stay", []string{"--machine", "52:54:00:00:00:11", "--same-disk", "--report-key", id}},
		{"which machine comes?", nil},
		{"is not the id of a key", []string{"--report-key", "x"}},
	} {
		if out, err := ask(row.args...); err == nil || !strings.Contains(err.Error()+out, row.want) {
			t.Errorf("%q: %v\n%s", row.args, err, out)
		}
	}
	out, err := ask("--machine", "52-54-00-00-00-11", "--dry-run")
	for _, want := range []string{"would be", "another one reports", "slot: of default", "caisson fleet slots release default a --reason", "rollout: running, wave 1", "caisson publish site.yaml"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("no %q: %v in\n%s", want, err, out)
		}
	}
	if is, err := os.ReadFile("site.yaml"); err != nil || string(is) != string(was) {
		t.Fatalf("it is changed: %v\n%s", err, is)
	}
	out, err = s.run("fleet", "replace", "site.yaml", "a", "--machine", "52:54:00:00:00:11", "--report-key", id, "--at", at, "--token-file", "reader")
	if err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("by a token of a reader: %v\n%s", err, out)
	}
	if is, err := os.ReadFile("site.yaml"); err != nil || string(is) != string(was) {
		t.Fatalf("it is changed although the service refused: %v\n%s", err, is)
	}
	if out, err := ask("--machine", "52:54:00:00:00:11"); err != nil || !strings.Contains(out, "is now") {
		t.Fatal(err, out)
	}
	if is, err := os.ReadFile("site.yaml"); err != nil || !strings.Contains(string(is), `{name: a, match: {macs: ["52:54:00:00:00:11"], uuids: ["11111111-2222-3333-4444-555555555555"]}}, {name: b}`) {
		t.Errorf("%v\n%s", err, is)
	}
	for range 2 { // the second call finds all of it done
		if out, err := ask("--report-key", id); err != nil || !strings.Contains(out, "report key") {
			t.Fatal(err, out)
		}
	}
	var r replace.Result
	text, err := s.run("fleet", "replace", "site.yaml", "a", "--dry-run", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &r)
	}
	if err != nil || r.Asked || !r.DryRun || r.Changed || r.Row == "" || !slices.Contains(r.Next, "caisson fleet replace site.yaml a --report-key KEY") {
		t.Errorf("%v %s", err, text)
	}
	if out, err := s.run("fleet", "audit", "--at", at, "--token-file", "token"); err != nil || !strings.Contains(out, "accept\ta\t"+id) {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := s.run("fleet", "replace", "-", "a", "--mac", "52:54:00:00:00:11"); cli.Code(err) != cli.ExitUsage {
		t.Error(err)
	}
}

// TestReplaceAtAStolenService: a service that lies has no word of its own run by a shell, nor in the
// site, but the identifiers that the verb shows.
func TestReplaceAtAStolenService(t *testing.T) {
	t.Chdir(t.TempDir())
	const site = "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: test}\nattached: true\nnodes: [{name: a}, {name: b}]\n"
	if err := os.WriteFile("site.yaml", []byte(site), 0o600); err != nil {
		t.Fatal(err)
	}
	const node = `{"name": "a", "key": "$(reboot)\u001b[2J", "offered": {"report": {"key": "; reboot"}}, "slots": [{"group": "$(reboot)", "node": "b"}], "published": {"holds": [{"kind": "$(reboot)", "reason": "\n  $(reboot)"}]}}`
	answers := map[string]string{
		"/v1/rollouts": `{"rollouts": [{"name": "x; reboot", "phase": "running", "waves": [{"name": "w", "state": "running", "nodes": ["a"]}]}]}`,
		"/v1/unknown":  `{"known": true, "machines": [{"from": "$(reboot)", "macs": ["52:54:00:00:00:11", "x\"]}}, {name: evil"], "uuids": ["$(reboot)"], "names": ["$(reboot)"]}]}`,
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, answers[req.URL.Path]) // the verb says what came
	}))
	t.Cleanup(service.Close)
	ask := func() (string, string, error) {
		t.Helper()
		var out, talk bytes.Buffer
		root := newApp(&out, &talk).root()
		root.SetArgs([]string{"fleet", "replace", "site.yaml", "a", "--at", service.URL, "--machine", "52:54:00:00:00:11"})
		err := root.ExecuteContext(t.Context())
		return out.String(), talk.String(), err
	}
	for _, other := range []string{"{}", "null", `{"name": "b"}`} {
		answers["/v1/nodes/a"] = other
		if _, _, err := ask(); err == nil || !strings.Contains(err.Error(), "another node than a") {
			t.Errorf("%s: %v", other, err)
		}
	}
	answers["/v1/nodes/a"] = node
	out, talk, err := ask()
	if err != nil || !strings.Contains(talk, "unproven") || strings.Contains(out+talk, "\x1b") {
		t.Fatalf("%v %q\n%s", err, talk, out)
	}
	run := 0
	for line := range strings.Lines(out) {
		if command := strings.TrimSpace(line); strings.HasPrefix(line, "    ") && command != "" {
			run++
			if words := shellWords(t, "$0 "+command); len(words) < 2 || strings.Contains(strings.NewReplacer("'$(reboot)'", "", "'; reboot'", "", "'x; reboot'", "").Replace(command), "reboot") {
				t.Errorf("%q", command)
			}
		}
	}
	if text, err := os.ReadFile("site.yaml"); err != nil || string(text) != strings.Replace(site, "{name: a}", `{name: a, match: {macs: ["52:54:00:00:00:11"]}}`, 1) || run < 5 {
		t.Errorf("%d commands, %v\n%s\n%s", run, err, text, out)
	}
}
