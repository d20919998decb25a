// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/compare"
	"github.com/caisson-os/caisson/spec/site/explain"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// kept is a node that got something else in generations 2, 5 and 9.
func kept(t *testing.T) *Node {
	t.Helper()
	r, err := registry.Open("oci:"+t.TempDir(), registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{Name: "a", From: r, Checks: []string{"true"}}
	for _, number := range []uint64{2, 5, 9} {
		n.kept = append(n.kept, history.Entry{Generation: published.Generation{Number: number}, Node: &history.Node{Overlay: "sha256:1"}})
	}
	return n
}

// A node has in a generation what the last one before gave it.
func TestAt(t *testing.T) {
	n := kept(t)
	for number, want := range map[uint64]int{2: 0, 4: 0, 5: 1, 8: 1, 9: 2, 100: 2} {
		if got, err := n.at(published.Generation{Number: number}); err != nil || got != want {
			t.Errorf("%d: %d, %v", number, got, err)
		}
	}
	if _, err := n.at(published.Generation{Number: 1}); err == nil {
		t.Error("what is not kept has a number")
	}
}

// Answers are of one search alone: another check, or another time-out, begins again. A damaged file is an error with its name.
func TestAnswers(t *testing.T) {
	n, dir := kept(t), t.TempDir()
	ask := func() (*answers, error) {
		a, err := n.answers(dir, 0, 2)
		if err != nil {
			t.Fatal(err)
		}
		return a, a.read()
	}
	a, err := ask()
	if err != nil || len(a.known) > 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	a.known["generation 0-2"] = Answer{Outcome: Bad, Why: "x"}
	if err := a.save(); err != nil {
		t.Fatal(err)
	}
	again, err := ask()
	if err != nil || again.known["generation 0-2"] != a.known["generation 0-2"] {
		t.Errorf("%+v, %v", again, err)
	}
	n.Checks = []string{"false"}
	if other, err := ask(); err != nil || len(other.known) > 0 {
		t.Errorf("of another check: %+v, %v", other, err)
	}
	n.Checks, n.Within = []string{"true"}, time.Minute
	if other, err := ask(); err != nil || len(other.known) > 0 {
		t.Errorf("of machines that had another time: %+v, %v", other, err)
	}
	n.Within = 0
	if err := os.WriteFile(a.file, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(); err == nil || !strings.Contains(err.Error(), a.file) {
		t.Errorf("a damaged file: %v", err)
	}
	if err := a.forget(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(dir + "/bisect/*"); len(left) > 0 || a.forget() != nil {
		t.Errorf("%q", left)
	}
}

// The network of a generation's loader is that of its commit, which is read once.
func TestBootNetwork(t *testing.T) {
	var asked []string
	n := &Node{then: map[string]Past{}, Then: func(commit string) Past {
		asked = append(asked, commit)
		return Past{Boot: []spec.BootNetwork{{VLAN: int64(len(asked))}}}
	}}
	for _, commit := range []string{"a", "b", "a", "b"} {
		if rows := n.past(commit).Boot; rows[0].VLAN != map[string]int64{"a": 1, "b": 2}[commit] {
			t.Errorf("%s: %+v", commit, rows)
		}
	}
	if !slices.Equal(asked, []string{"a", "b"}) {
		t.Errorf("asked for %q", asked)
	}
}

// What the site has no more is named where the first commit has it that knows the node and the setting.
func TestFormerly(t *testing.T) {
	parsed := func(conf string) *site.Site {
		s, found := site.Parse(fstest.MapFS{"then/site.yaml": {Data: []byte("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: f}\nnodes: [{name: a}]\n" + conf)}}, "then/site.yaml")
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	n := &Node{Name: "a", then: map[string]Past{}, Then: func(commit string) Past {
		return map[string]Past{"none": {}, "without": {Site: parsed(""), Dir: "then"}, "with": {Site: parsed("conf:\n  sysctl:\n    vm.swappiness: 7\n"), Dir: "then"}}[commit]
	}}
	for commits, want := range map[string]string{"none": "", "without": "", "none without with": "site.yaml:7 at commit with, not in the site now", "with": "site.yaml:7 at commit with, not in the site now"} {
		var b strings.Builder
		p := Part{Name: "sysctl/vm.swappiness"}
		n.formerly(&p, []string{p.Name}, strings.Fields(commits)...)
		p.write(&b)
		if (p.Origin == nil) != (want == "") || !strings.HasSuffix(b.String(), want+"\n") {
			t.Errorf("%s: %+v, %s", commits, p, b.String())
		}
	}
}

// The last line names the change and where it is written.
func TestWrite(t *testing.T) {
	r := Result{Node: "a", Good: "0-2", Bad: "0-5", Why: "true ended with 1", Author: "eve", Reason: "more memory", Commit: "0123abcd+", Skipped: []string{"0-3"}, Parts: []Part{
		{Name: "sysctl/vm.swappiness", Changes: []plan.Change{{Change: spec.Change{Item: "sysctl", Key: "vm.swappiness", From: "10", To: "90", Action: spec.ActionChange}}},
			Origin: &explain.Origin{Source: "base", File: "site.yaml", Line: 7, Column: 5}}}}
	var b strings.Builder
	r.Write(&b)
	const want = "generations that could not be tried, and may be it, too: 0-3\npasses with 0-2, fails with 0-5: true ended with 1\n" +
		"generation 0-5, eve, more memory, site 0123abcd+\n~ sysctl vm.swappiness: 10 → 90; site.yaml:7\n"
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
	b.Reset()
	r.Parts = []Part{{Name: "layer/packages", Changes: []plan.Change{{Change: spec.Change{Item: "apt", Key: "bc", To: "1.07", Action: spec.ActionAdd}}}}}
	if r.Write(&b); !strings.HasSuffix(b.String(), "\n+ apt bc: 1.07; in the layer\n") {
		t.Errorf("%s", b.String())
	}
	b.Reset()
	layer := Part{Name: compare.Layer, Changes: slices.Repeat(r.Parts[0].Changes, shown+2)}
	r.Parts = []Part{{Name: "sysctl/gone", Changes: r.Parts[0].Changes}, layer}
	r.Write(&b)
	if got := b.String(); !strings.Contains(got, "\n2 parts, of which none") || !strings.Contains(got, "; the site does not have it now\n") || !strings.HasSuffix(got, "\n  … and 2 more\nlayer; what is in it is not tried apart\n") {
		t.Errorf("%s", got)
	}
}
