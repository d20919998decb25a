// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
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
