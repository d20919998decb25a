// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
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
	v := &verdict{more: map[string]any{}}
	w.say(v)
	if words, _ := v.more["message"].(string); !strings.HasSuffix(words, "; the programs of layer default were not asked") {
		t.Errorf("it says %q", words)
	}
}
