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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/report"
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
	fleet := "metal-a"
	health, sync, ahead := "ok", "current", time.Hour
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.URL.Path == "/v1/summary" {
			_ = json.NewEncoder(w).Encode(map[string]string{"fleet": fleet}) // the client is this test's
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
			_ = json.NewEncoder(w).Encode(report.Reported{Node: node, Received: at, Overlay: row.Published.Overlay,
				Axes: spec.Axes{Sync: spec.Axis{State: sync}, Health: spec.Axis{State: health, Detail: "sysctl: no"}}})
		}
	}))
	defer service.Close()
	run := []string{"rollout", "run", "r", "site.yaml", "--at", service.URL, "--token-file", "token", "--interval", "10ms", "--unsigned-reports"}
	site("2")
	must("rollout", "start", "r", "site.yaml")
	if out := must(append(run, "--for", "5m")...); !strings.Contains(out, "wave 1: begins with 1 node,") || !strings.Contains(out, "wave 2: done, 1 healthy") {
		t.Errorf("a good rollout says: %s", out)
	}
	if out := must("rollout", "status", "oci:out", "--site", "site.yaml"); !strings.Contains(out, "done since") {
		t.Errorf("after it: %s", out)
	}
	// One that has ended is not driven, with whatever service, and for a timer there is nothing to do.
	nobody := httptest.NewServer(http.NotFoundHandler())
	at := slices.Index(run, service.URL)
	elsewhere := func(url string) []string {
		other := slices.Clone(run)
		other[at] = url
		return append(other, "--for", "5m")
	}
	if out, err := caisson(elsewhere(nobody.URL)...); err == nil || !strings.Contains(err.Error(), "rollout r has ended already") {
		t.Errorf("after the end: %v\n%s", err, out)
	}
	if out := must(append(run, "--once")...); !strings.Contains(out, "rollout r has ended") {
		t.Errorf("a step after the end: %s", out)
	}
	site("3")
	must("rollout", "start", "r", "site.yaml")
	// A service that is another program's, is not there, or is of another fleet is not tried again.
	for _, gone := range []string{"answers 404", "connection refused"} {
		if out, err := caisson(elsewhere(nobody.URL)...); err == nil || !strings.Contains(err.Error(), gone) {
			t.Errorf("without a service: %v, want %s\n%s", err, gone, out)
		}
		nobody.Close()
	}
	fleet = "metal-b"
	if out, err := caisson(append(run, "--for", "5m")...); err == nil || !strings.Contains(err.Error(), "the service serves fleet metal-b, the rollout is for fleet metal-a") {
		t.Errorf("with the service of another fleet: %v\n%s", err, out)
	}
	fleet = "metal-a"
	must(append(run, "--once")...)
	health = "degraded"
	if out := must(append(run, "--once")...); !strings.Contains(out, "1 pending: a") {
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
	// A rollout that everybody is kept out of does not end well.
	health, sync = "ok", "current"
	if out := must("rollback", "oci:out", "--all", "--reason", "mounts fail", "--site", "site.yaml"); !strings.Contains(out, "rollout r is running, and has 2 of these nodes") {
		t.Errorf("a rollback during a rollout says: %s", out)
	}
	if out, err := caisson(append(run, "--for", "5m")...); !errors.Is(err, cli.ErrDrift) || !strings.Contains(out, "none of its 2 nodes has what it brings: ") {
		t.Errorf("a rollout that was overtaken: %v\n%s", err, out)
	}
	must("rollout", "abort", "oci:out", "r", "--site", "site.yaml")
	must("forward", "oci:out", "--all", "--site", "site.yaml")
	must("publish", "site.yaml")
	site("4")
	must("rollout", "start", "r", "site.yaml")
	must("freeze", "oci:out", "--node", "b", "--reason", "a disk", "--site", "site.yaml")
	if out, err := caisson(append(run, "--for", "5m")...); !errors.Is(err, cli.ErrDrift) || !strings.Contains(out, "1 of 2 nodes left out: b (held: freeze, a disk)") {
		t.Errorf("a rollout that leaves a node out: %v\n%s", err, out)
	}
	must("forward", "oci:out", "--all", "--site", "site.yaml")
	if out := must("history", "oci:out", "--site", "site.yaml"); !strings.Contains(out, "rollout r wave 1 ") || !strings.Contains(out, "rollout r halt ") || !strings.Contains(out, "1 of 1 node failed: a") || !strings.Contains(out, "rollout r done ") {
		t.Errorf("the history is\n%s", out)
	}
	site("5")
	must("rollout", "start", "r", "site.yaml")
	token("other")
	if out, err := caisson(append(run, "--once")...); err == nil || !strings.Contains(err.Error(), "answers 401") {
		t.Errorf("without permission: %v\n%s", err, out)
	}
}
