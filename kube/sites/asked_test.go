// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/kube/object"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
	"github.com/caisson-os/caisson/spec/site/service"
)

// TestSaysWhoWasNotAsked: who approves a plan reads in it that no program of the layer was asked
// about files; nodes that keep what they have are no part of that.
func TestSaysWhoWasNotAsked(t *testing.T) {
	s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nattached: true\nnodes: [{name: a}, {name: b}, {name: c}]\n")}}, "site.yaml")
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	changed := []plan.Change{{Change: spec.Change{Item: "files"}}}
	w := &work{site: s, plan: &plan.Plan{Nodes: []plan.NodePlan{{Name: "a", Changes: changed}, {Name: "b", Changes: changed, Held: "paused"}, {Name: "c"}}},
		nodes: []publish.Node{{Name: "a"}, {Name: "b"}, {Name: "c"}}, notAsked: []string{"the programs of layer default were not asked"}}
	if names := w.changed(); len(names) != 1 || names[0].Name != "a" {
		t.Errorf("asked about files of %v", names)
	}
	v := &object.Verdict{More: map[string]any{}}
	w.say(v)
	if words, _ := v.More["message"].(string); !strings.HasSuffix(words, "; the programs of layer default were not asked") {
		t.Errorf("it says %q", words)
	}
}

// TestSaysWhoseServiceWasNotAsked: what a service brings to a path that has a reader is no less than
// a file of the site.
func TestSaysWhoseServiceWasNotAsked(t *testing.T) {
	const text = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
attached: true
nodes: [{name: a}, {name: b}]
---
apiVersion: caisson.dev/v1alpha1
kind: NodeService
metadata: {name: %s}
spec: {git: {url: "https://git.example/x.git", branch: main}, directories: [{from: rule, to: %s, file: true}]}
`
	for to, want := range map[string]bool{"/etc/sudoers.d/ann": true, "/etc/motd.d/ann": false} {
		lock := service.NewLock()
		lock.Services["ann"] = service.Locked{URL: "https://git.example/x.git", Ref: "branch main", From: []string{"rule"},
			Commit: strings.Repeat("1", 40), Date: time.Unix(1, 0).UTC(), Image: spec.Blob{Digest: "sha256:" + strings.Repeat("2", 64), Size: 1}}
		row, err := lock.Encode()
		if err != nil {
			t.Fatal(err)
		}
		s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: fmt.Appendf(nil, text, "ann", to)}, "services.lock": {Data: row}}, "site.yaml")
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
		w := &work{site: s, plan: &plan.Plan{Nodes: []plan.NodePlan{{Name: "a", Changes: []plan.Change{{Change: spec.Change{Item: "services"}}}}}},
			nodes: []publish.Node{{Name: "a"}, {Name: "b"}}}
		if err := (&Reconciler{State: t.TempDir()}).ask(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(w.notAsked, "; "); strings.Contains(said, "service ann: its image is not in this cache") != want {
			t.Errorf("%s: it says %q", to, said)
		}
	}
}
