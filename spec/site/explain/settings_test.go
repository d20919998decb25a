// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/explain"
)

const three = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
layer: {base: {debian: {suite: trixie, components: [main]}}, kernel: {package: linux-image-amd64}}
nodes: [{name: a, labels: {k: v}}, {name: b}, {name: c}]
conf:
  sysctl: {vm/swappiness: 1, kernel.panic: 5}
  files: {/etc/motd: {content: "a=b"}}
  apt: {packages: [{name: jq}, {name: tmux}]}
  overrides:
    divingbell_sysctl:
      labels:
      - {label: {key: k, values: [v]}, conf: {sysctl: {vm.swappiness: 2, net.core.somaxconn: 9}}}
    divingbell_apt:
      hosts:
      - {name: b, conf: {apt: {packages: [{name: curl}, {name: jq}, {name: tmux}]}}}
`

func nodes(t *testing.T) []*explain.Explanation {
	t.Helper()
	s, r := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(three)}}, "site.yaml")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	var list []*explain.Explanation
	for _, n := range s.Nodes() {
		e, err := s.Explain(n.Name, nil)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// Every value of the explanation is a setting with its own path and origin.
func TestSettings(t *testing.T) {
	for _, e := range nodes(t) {
		settings := e.Settings()
		if want := len(e.Origins) + len(e.Labels) + len(e.KernelArgs); len(settings) != want {
			t.Errorf("%s: %d settings, not %d", e.Node, len(settings), want)
		}
		seen := map[string]bool{}
		for _, s := range settings {
			if seen[s.Path] || s.Path == "" {
				t.Errorf("%s: %q stands twice", e.Node, s.Path)
			}
			seen[s.Path] = true
		}
		if !seen["files//etc/motd/content"] || !seen["apt/packages/jq/name"] {
			t.Errorf("%s: %v", e.Node, seen)
		}
	}
}

func TestUses(t *testing.T) {
	for key, want := range map[string]string{
		"sysctl/vm.swappiness":      "sysctl/vm.swappiness\n  1  site.yaml:7                   2 nodes: b c\n  2  site.yaml:13 label:k, over 1  1 node: a\n",
		"sysctl/net.core":           "", // a part of a name is not a setting
		"files":                     "files//etc/motd/content\n  a=b  site.yaml:8  3 nodes: a b c\n",
		"sysctl/net.core.somaxconn": "sysctl/net.core.somaxconn\n  9        site.yaml:13 label:k  1 node: a\n  not set                        2 nodes: b c\n",
		"sysctl/vm.swapiness":       "",
		"":                          "",
	} {
		u, err := explain.UsesOf(key, nodes(t))
		if (err != nil) != (want == "") {
			t.Errorf("%q: %v", key, err)
		}
		var out bytes.Buffer
		u.Write(&out)
		if want != "" && out.String() != want {
			t.Errorf("%q is\n%s, not\n%s", key, out.String(), want)
		}
	}
}

func TestWhere(t *testing.T) {
	for condition, want := range map[string]string{
		"sysctl/vm.swappiness=1":      "b c |",
		"sysctl/vm.swappiness=3":      ` | "1" "2"`,
		"sysctl/net.core.somaxconn":   "a |",
		"apt/packages/curl":           "b |",
		"files//etc/motd/content=a=b": "a b c |",
		"files//etc/motd=x":           "has no value of its own",
		"sysctl/vm.swappines=1":       "no node of the site has a setting",
		"labels/k=v":                  "a |",
	} {
		names, others, err := explain.Where(condition, nodes(t))
		got := strings.TrimRight(strings.Join(names, " ")+" | "+strings.Join(others, " "), " ")
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%s: %s, not %s", condition, got, want)
		}
	}
}

// Several conditions must all hold; a value that no node has is said, also where another one is met.
func TestAll(t *testing.T) {
	for conditions, want := range map[string]string{
		"sysctl/vm.swappiness=1":                            "b c",
		"sysctl/vm.swappiness=1 apt/packages/curl":          "b",
		"sysctl/vm.swappiness=2 apt/packages/curl":          "",
		"apt/packages/curl sysctl/vm.swappiness=3":          `: no node has sysctl/vm.swappiness=3; there is: "1", "2"`,
		"sysctl/vm.swappiness sysctl/vm.swappiness=2 files": "a",
	} {
		names, none, err := explain.All(strings.Fields(conditions), nodes(t))
		got := strings.Join(names, " ")
		if none != "" {
			got += ": " + none
		}
		if err != nil || got != want {
			t.Errorf("%s: %s, not %s, %v", conditions, got, want, err)
		}
	}
}

// What one node has and another has not is told once, with both origins; an element more in a
// list says nothing about those behind it.
func TestAgainst(t *testing.T) {
	list := nodes(t)
	var out bytes.Buffer
	list[1].Against(list[2]).Write(&out, "b", "c")
	if want := "apt/packages/curl/name\n  b  curl     site.yaml:16 host:b\n  c  not set\n"; out.String() != want {
		t.Errorf("b and c:\n%s, not\n%s", out.String(), want)
	}
	a, b := list[0].Against(list[1]), list[1].Against(list[0])
	if len(a) != len(b) || len(list[0].Against(list[0])) != 0 {
		t.Errorf("%v and %v", a, b)
	}
	for i := range a {
		if a[i].Path != b[i].Path || a[i].A != nil && (b[i].B == nil || a[i].A.Value != b[i].B.Value) {
			t.Errorf("%+v and %+v", a[i], b[i])
		}
	}
}
