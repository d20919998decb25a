// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const choice = head + `nodes:
- {name: host}
- {name: hos}
- {name: host.example.org}
- {name: lab, labels: {k: v1}}
- {name: both, labels: {k: v2, z: z1}}
- {name: named, labels: {k: v1}}
- {name: none, labels: {k: other}}
- {name: words, labels: {k: "on"}}
conf:
  sysctl: {vm.swappiness: 0}
  overrides:
    divingbell_sysctl:
      hosts:
      - {name: host, conf: {sysctl: {vm.swappiness: 1}}}
      - {name: named, conf: {sysctl: {kernel.panic: 1}}}
      - {name: none}
      labels:
      - {label: {key: k, values: [v1, v2]}, conf: {sysctl: {vm.swappiness: 2}}}
      - {label: {key: z, values: [z1]}, conf: {sysctl: {kernel.panic: 3}}}
      - {label: {key: k, values: [on]}, conf: {sysctl: {vm/swappiness: 4}}}
      - {label: {key: kubernetes.io/hostname, values: [hos]}, conf: {sysctl: {vm.swappiness: 5}}}
`

func TestChoice(t *testing.T) {
	s := mustParse(t, choice)
	for _, tt := range []struct{ node, target, sysctl string }{
		{"host", "host:host", "vm/swappiness=1"},
		{"hos", "label:kubernetes.io/hostname", "vm/swappiness=5"}, // a name is compared whole
		{"host.example.org", "default", "vm/swappiness=0"},         // on either side
		{"lab", "label:k", "vm/swappiness=2"},
		{"both", "label:z", "kernel/panic=3 vm/swappiness=0"},     // the last that fits, alone
		{"named", "host:named", "kernel/panic=1 vm/swappiness=0"}, // a host entry takes no label's values
		{"none", "host:none", "vm/swappiness=0"},                  // an entry without conf equals the base
		{"words", "label:k", "vm/swappiness=4"},                   // on is text, and so is a key's other spelling
	} {
		e, err := s.Explain(tt.node, nil)
		if err != nil {
			t.Fatal(err)
		}
		if e.Target["sysctl"] != tt.target {
			t.Errorf("%s: target %s, want %s", tt.node, e.Target["sysctl"], tt.target)
		}
		o, err := s.Overlay(tt.node, "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, k := range o.Items.Sysctl {
			got = append(got, k.Key+"="+k.Value)
		}
		if text := strings.Join(got, " "); text != tt.sysctl {
			t.Errorf("%s: %s, want %s", tt.node, text, tt.sysctl)
		}
	}
}

// An empty stanza disabled a module in Divingbell; here it changes nothing.
func TestEmptyStanzas(t *testing.T) {
	for _, stanza := range []string{"{}", "", "{hosts: []}", "{labels: []}", "{hosts: , labels: }"} {
		s := mustParse(t, head+"nodes: [{name: a}]\nconf:\n  sysctl: {vm.swappiness: 1}\n  overrides:\n    divingbell_sysctl: "+stanza+"\n")
		o, err := s.Overlay("a", "")
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Items.Sysctl) != 1 {
			t.Errorf("stanza %q: sysctls %v", stanza, o.Items.Sysctl)
		}
	}
	if s := mustParse(t, head+"nodes: [{name: a}]\nconf: {sysctl: {vm.swappiness: 1}, overrides: }\n"); s == nil {
		t.Error("no overrides at all")
	}
}

// TestChoiceAgainstReference holds the choice to the rule in its own words: a
// host entry of that very name; else the last label entry whose key's value is
// among the values; else the default.
func TestChoiceAgainstReference(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	letters := func(n int) string { return string(rune('a' + r.IntN(n))) }
	seen := map[string]int{}
	for range 500 {
		var hosts []string
		type label struct {
			key    string
			values []string
		}
		var labels []label
		var b strings.Builder
		b.WriteString(head + "conf:\n  overrides:\n    divingbell_limits:\n      hosts:\n")
		for range r.IntN(3) {
			h := letters(4)
			if !slices.Contains(hosts, h) {
				hosts = append(hosts, h)
				fmt.Fprintf(&b, "      - {name: %s}\n", h)
			}
		}
		b.WriteString("      labels:\n")
		for range r.IntN(5) {
			l := label{key: letters(3), values: []string{letters(3), letters(3)}}
			labels = append(labels, l)
			fmt.Fprintf(&b, "      - {label: {key: %s, values: [%s]}}\n", l.key, strings.Join(l.values, ", "))
		}
		s := mustParse(t, b.String())
		name, node := letters(4), map[string]string{letters(3): letters(3), letters(3): letters(3)}
		want := "default"
		for _, l := range labels {
			if v, ok := node[l.key]; ok && slices.Contains(l.values, v) {
				want = "label:" + l.key
			}
		}
		if slices.Contains(hosts, name) {
			want = "host:" + name
		}
		e, err := s.Explain(name, node)
		if err != nil {
			t.Fatal(err)
		}
		if e.Target["limits"] != want {
			t.Fatalf("%s\nnode %s %v: target %s, want %s", b.String(), name, node, e.Target["limits"], want)
		}
		seen[want[:4]]++
	}
	for _, kind := range []string{"host", "labe", "defa"} {
		if seen[kind] < 50 {
			t.Errorf("only %d of 500 inputs chose %s", seen[kind], kind)
		}
	}
}

// What one target changes must not show in another: a bug of Divingbell's past.
func TestNoLeakage(t *testing.T) {
	s := mustParse(t, head+`nodes: [{name: a}, {name: b}, {name: c}]
conf:
  sysctl: &s {vm.swappiness: 1, kernel.panic: 2}
  overrides:
    divingbell_sysctl:
      hosts:
      - {name: a, conf: {sysctl: {vm.swappiness: 9, vm.stat_interval: 3}}}
      - {name: b, conf: {sysctl: *s}}
`)
	count := map[string]int{"a": 3, "b": 2, "c": 2}
	for range 2 { // also the second time
		for node, n := range count {
			o, err := s.Overlay(node, "")
			if err != nil {
				t.Fatal(err)
			}
			if len(o.Items.Sysctl) != n {
				t.Errorf("%s: %v, want %d keys", node, o.Items.Sysctl, n)
			}
		}
	}
}

func TestNodeSelectorAndManifests(t *testing.T) {
	s, r := Parse(files("values.yaml", `manifests: {daemonset_limits: false}
labels:
  sysctl: {node_selector_key: tuned, node_selector_value: enabled}
  exec: {node_selector_key: kubernetes.io/os, node_selector_value: linux}
conf:
  sysctl: {vm.swappiness: 1}
  limits: {a: {domain: r, type: hard, item: core, value: 0}}
  exec: {e: {data: "#!/bin/sh", rerun_policy: never}}
`, "nodes.yaml", "nodes: [{name: a, labels: {tuned: enabled}}, {name: b}]"), "values.yaml", "nodes.yaml")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	a, _ := s.Overlay("a", "")
	b, _ := s.Overlay("b", "")
	if len(a.Items.Sysctl) != 1 || len(b.Items.Sysctl) != 0 || len(a.Items.Limits) != 0 || len(b.Items.Exec) != 1 {
		t.Errorf("a %+v\nb %+v", a.Items, b.Items)
	}
}

// A null takes everything of a module, or of an interface, away.
func TestNullOverrides(t *testing.T) {
	s := mustParse(t, head+`nodes: [{name: a}, {name: b}]
conf:
  sysctl: {vm.swappiness: 1}
  ethtool: {eth0: {gro: on}, eth1: {gro: on}}
  overrides:
    divingbell_sysctl: {hosts: [{name: a, conf: {sysctl: }}]}
    divingbell_ethtool: {hosts: [{name: a, conf: {ethtool: {eth0: }}}]}
`)
	a, _ := s.Overlay("a", "")
	b, _ := s.Overlay("b", "")
	if len(a.Items.Sysctl) != 0 || len(a.Items.Ethtool) != 1 || a.Items.Ethtool[0].Interface != "eth1" {
		t.Errorf("a: %+v", a.Items)
	}
	if len(b.Items.Sysctl) != 1 || len(b.Items.Ethtool) != 2 {
		t.Errorf("b: %+v", b.Items)
	}
}
