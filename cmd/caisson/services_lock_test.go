// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/service"
)

// TestTheLockIsWrittenByOne: a freeze that comes while an update asks git outlives it.
func TestTheLockIsWrittenByOne(t *testing.T) {
	t.Chdir(t.TempDir())
	a := newApp(io.Discard, io.Discard)
	text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal-a}\nattached: true\nnodes: [{name: a}]\n---\n" +
		"apiVersion: caisson.dev/v1alpha1\nkind: NodeService\nmetadata: {name: dns}\nspec:\n  git: {url: \"https://git.example.org/dns.git\", branch: main}\n  directories: [{from: dns, to: /etc/dns}]\n"
	lock := service.NewLock()
	lock.Services["dns"] = service.Locked{URL: "https://git.example.org/dns.git", Ref: "branch main", From: []string{"dns"}, Commit: strings.Repeat("a", 40),
		Date: time.Unix(0, 0).UTC(), Image: spec.Blob{Digest: "sha256:" + strings.Repeat("b", 64), Size: 1}}
	data, err := lock.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"site.yaml": []byte(text), service.LockName: data} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func() *services {
		r := &services{files: []string{"site.yaml"}, cache: "cache"}
		if err := r.open(a, nil); err != nil {
			t.Fatal(err)
		}
		return r
	}
	frozen := func(r *services, why string) {
		row := r.Services["dns"]
		row.Frozen = &service.Frozen{Reason: why}
		r.Services["dns"] = row
	}
	update, freeze := open(), open()
	frozen(freeze, "a review")
	if err := a.writeServices(freeze, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.writeServices(update, nil, nil); err == nil || !strings.Contains(err.Error(), "services.lock has changed meanwhile") {
		t.Errorf("an update that began before: %v", err)
	}
	if after := open().Services["dns"].Frozen; after == nil || after.Reason != "a review" {
		t.Errorf("after both: %+v", after)
	}
}

// TestReportedServices: what a node says stands beside what it was sent; a commit that
// it was not sent, and none, are differences. Each node is asked for once.
func TestReportedServices(t *testing.T) {
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
	asked := map[string]int{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		node := strings.TrimPrefix(req.URL.Path, "/v1/nodes/")
		asked[node]++
		d := hub.Detail{}
		switch node {
		case "a":
			d.Report = spec.NewReport(&spec.Status{Services: []spec.ServiceStatus{{Name: "x", Commit: two}, {Name: "y", Commit: one}}})
		case "b":
			d.Report = spec.NewReport(&spec.Status{Services: []spec.ServiceStatus{{Name: "x", Commit: one}}})
		case "c":
		default:
			t.Errorf("asked for %s", node)
		}
		if err := json.NewEncoder(w).Encode(d); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	out := []content.Standing{
		{Name: "x", Published: []content.Has{{Commit: two, Nodes: []string{"a", "b", "c"}}}},
		{Name: "y", Published: []content.Has{{Commit: one, Nodes: []string{"a"}}}},
	}
	if err := content.AddReported(t.Context(), out, (&asking{Client: query.Client{At: s.URL}}).Commits); err != nil {
		t.Fatal(err)
	}
	want := []content.Has{{Commit: two, Nodes: []string{"a"}}, {Commit: one, Nodes: []string{"b"}}, {Nodes: []string{"c"}}}
	if !reflect.DeepEqual(out[0].Reported, want) || !out[0].Differs {
		t.Errorf("%+v", out[0])
	}
	if out[1].Differs || len(out[1].Reported) != 1 || out[1].Reported[0].Commit != one {
		t.Errorf("%+v", out[1])
	}
	if !reflect.DeepEqual(asked, map[string]int{"a": 1, "b": 1, "c": 1}) {
		t.Errorf("asked %v", asked)
	}
}
