// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

// TestRolloutRun runs rollouts of a published site to their two ends, with what nodes
// report standing in for the nodes.
func TestRolloutRun(t *testing.T) {
	t.Chdir(t.TempDir())
	token := func(text string) {
		if err := os.WriteFile("token", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	token("secret")
	site := func(value string) {
		text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal-a}\nregistry: oci:out\nattached: true\ntrust: {keys: {operator: keys/operator.pub}}\n" +
			"nodes: [{name: a}, {name: b}]\nconf: {sysctl: {vm.swappiness: " + value + "}}\n---\napiVersion: caisson.dev/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {waves: [{hosts: [a]}], soak: 1m, deadline: 1h}\n"
		if err := os.WriteFile("site.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	caisson := func(args ...string) (string, error) {
		t.Helper()
		var out, talk bytes.Buffer
		root := newApp(&out, &talk).root()
		root.SetArgs(args)
		err := root.ExecuteContext(t.Context())
		return out.String() + talk.String(), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := caisson(args...)
		if err != nil {
			t.Fatalf("caisson %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	must("keys", "generate", filepath.Join("keys", "operator"))
	site("1")
	must("publish", "site.yaml")
	// Nodes that run what is published for them, and have been so for an hour, by a
	// clock that is an hour ahead: waves soak at once.
	health, sync, ahead := "ok", "current", time.Hour
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		for _, node := range []string{"a", "b"} {
			var row struct {
				Published struct{ Overlay string } `json:"row"`
			}
			var out bytes.Buffer
			root := newApp(&out, &out).root()
			root.SetArgs([]string{"inspect", "oci:out", "--node", node, "--site", "site.yaml", "-o", "json", "-q"})
			if err := root.ExecuteContext(r.Context()); err != nil {
				t.Error(err, out.String())
			}
			if err := json.Unmarshal(out.Bytes(), &row); err != nil || row.Published.Overlay == "" {
				t.Error(err, out.String())
			}
			at := time.Now().Add(ahead)
			_ = json.NewEncoder(w).Encode(view.Reported{Node: node, Received: at, Overlay: row.Published.Overlay,
				Axes: spec.Axes{Sync: spec.Axis{State: sync}, Health: spec.Axis{State: health, Detail: "sysctl: no"}}})
		}
	}))
	defer service.Close()
	run := []string{"rollout", "run", "r", "site.yaml", "--at", service.URL, "--token-file", "token", "--interval", "10ms"}
	site("2")
	must("rollout", "start", "r", "site.yaml")
	if out := must(append(run, "--for", "5m")...); !strings.Contains(out, "wave 1: begins with 1 node,") || !strings.Contains(out, "wave 2: done, 1 well") {
		t.Errorf("a good rollout says: %s", out)
	}
	if out := must("rollout", "status", "oci:out", "--site", "site.yaml"); !strings.Contains(out, "done since") {
		t.Errorf("after it: %s", out)
	}
	site("3")
	must("rollout", "start", "r", "site.yaml")
	must(append(run, "--once")...)
	health = "degraded"
	if out := must(append(run, "--once")...); !strings.Contains(out, "1 on their way: a") {
		t.Errorf("one step: %s", out)
	}
	sync = "refused:epoch"
	if out, err := caisson(append(run, "-o", "json")...); !errors.Is(err, cli.ErrDrift) || !strings.Contains(out, "1 of 1 node failed: a (it refuses the overlay: epoch)") || !strings.Contains(out, `"phase": "halted"`) {
		t.Errorf("a rollout that halts: %v\n%s", err, out)
	}
	must("rollout", "resume", "oci:out", "r", "--site", "site.yaml")
	must(append(run, "--once")...) // the wave begins again
	if out, err := caisson(append(run, "--once")...); !errors.Is(err, cli.ErrDrift) || strings.Count(out, "1 of 1 node failed") != 1 {
		t.Errorf("the step that halts: %v\n%s", err, out)
	}
	must("rollout", "resume", "oci:out", "r", "--site", "site.yaml")
	token("other")
	if out, err := caisson(append(run, "--once")...); err == nil || !strings.Contains(err.Error(), "answers 401") {
		t.Errorf("without permission: %v\n%s", err, out)
	}
}
