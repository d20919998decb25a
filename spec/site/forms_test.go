// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+by) + "\n"
}

// The same values compile to the same items in every form they come in.
func TestForms(t *testing.T) {
	values, err := os.ReadFile("../../examples/divingbell/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	nodes := "nodes:\n- {name: ctrl-1}\n- {name: comp-1, labels: {compute_type: dpdk}}\n- {name: other}\n"
	armada := "---\nschema: armada/ChartGroup/v1\nmetadata: {name: group}\ndata: {chart_group: [divingbell]}\n---\nschema: armada/Chart/v1\nmetadata: {schema: metadata/Document/v1, name: divingbell}\n" +
		"data:\n  chart_name: divingbell\n  release: divingbell\n  values:\n" + indent(string(values), "    ") + "...\n"
	var want map[string]string
	for form, fsys := range map[string]map[string]string{
		"helm":   {"a.yaml": string(values), "n.yaml": nodes},
		"armada": {"a.yaml": armada, "n.yaml": nodes},
		"site":   {"a.yaml": strings.Replace(head, "name: x", "name: default", 1) + "attached: true\nvalues: [v.yaml]\ninventory: i.yaml\n", "v.yaml": string(values), "i.yaml": nodes},
		"inline": {"a.yaml": strings.Replace(head, "name: x", "name: default", 1) + "attached: true\n" + string(values) + nodes},
		"list":   {"a.yaml": string(values), "n.yaml": strings.TrimPrefix(nodes, "nodes:\n")},
		"one":    {"a.yaml": string(values) + "---\n" + nodes},
	} {
		var pairs []string
		names := []string{"a.yaml"}
		for name, text := range fsys {
			pairs = append(pairs, name, text)
			if name == "n.yaml" {
				names = append(names, name)
			}
		}
		s, r := Parse(files(pairs...), names...)
		if r.Err() != nil {
			t.Errorf("%s: %v", form, r.Err())
			continue
		}
		got := map[string]string{}
		for _, n := range s.Nodes() {
			data, err := s.Compile(n.Name, "", "")
			if err != nil {
				t.Fatal(err)
			}
			got[n.Name] = string(data)
		}
		if want == nil {
			want = got
		}
		if len(got) != 3 {
			t.Errorf("%s: nodes %v", form, got)
		}
		for n := range want {
			if got[n] != want[n] {
				t.Errorf("%s: node %s:\n got %s\nwant %s", form, n, got[n], want[n])
			}
		}
	}
}

func TestKubeInventory(t *testing.T) {
	const list = `{"apiVersion": "v1", "items": [
 {"apiVersion": "v1", "kind": "Node",
  "metadata": {"name": "ip-10-0-0-1", "labels": {"kubernetes.io/hostname": "host1", "role": "db"}, "annotations": {"a": "b"}},
  "spec": {"taints": []}, "status": {"nodeInfo": {"systemUUID": "6F1C2A4E-58A1-4C3B-9B61-0D5F3C2B7A11"}}},
 {"kind": "Node", "metadata": {"name": "host2"}, "status": {}},
 {"kind": "Pod", "metadata": {"name": "pod"}}
], "kind": "List", "metadata": {"resourceVersion": ""}}`
	s, r := Parse(files("site.yaml", head+"inventory: nodes.json\n", "nodes.json", list), "site.yaml")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	n := s.Nodes()
	if len(n) != 2 || n[0].Name != "host1" || n[0].Labels["role"] != "db" || !slices.Equal(n[0].Match.UUIDs, []string{"6f1c2a4e-58a1-4c3b-9b61-0d5f3c2b7a11"}) || n[1].Name != "host2" {
		t.Errorf("nodes = %+v", n)
	}
	said := fmt.Sprint(r.Problems)
	for _, want := range []string{"nodes.json:6:1: inventory: an object of kind Pod is not a node", "nodes.json:2:1: inventory: labels and UUIDs from Kubernetes are what each kubelet says of itself",
		"nodes.json:2:1: inventory: each kubelet says by the label kubernetes.io/hostname what its node is called: host1 (ip-10-0-0-1)"} {
		if r.Count(report.Warning) != 2 || !strings.Contains(said, want) {
			t.Errorf("problems = %s, want %q", said, want)
		}
	}
	for _, bad := range []string{`{"items": [{"kind": "Node", "metadata": {"name": 1}}]}`, `{"kind": "List", "items": 3}`, `{"items": [`, `{`,
		list[:len(list)-1], list[:len(list)-1] + `]`, list + list, list + "\n" + `{}`, list + "x"} {
		if _, r := Parse(files("site.yaml", head+"inventory: nodes.json\n", "nodes.json", bad), "site.yaml"); r.Err() == nil {
			t.Errorf("no error for %s", bad)
		}
	}
	if _, r := Parse(files("site.yaml", head+"inventory: nodes.json\n", "nodes.json", list+"\n"+list+"\n"), "site.yaml"); !strings.Contains(fmt.Sprint(r.Problems),
		"nodes.json:8:1: inventory: more follows after the object of the nodes") {
		t.Errorf("of two lists: %v", r.Problems)
	}
}

// TestSharedUUIDs: a UUID that several machines have is none of theirs, and the others of
// the inventory stay as they are.
func TestSharedUUIDs(t *testing.T) {
	node := func(name, uuid string) string {
		return `{"kind": "Node", "metadata": {"name": "` + name + `"}, "status": {"nodeInfo": {"systemUUID": "` + uuid + `"}}}`
	}
	const own, twice, filler = "6f1c2a4e-58a1-4c3b-9b61-0d5f3c2b7a11", "4c4c4544-0042-4810-8051-b2c04f4d3532", "03000200-0400-0500-0006-000700080009"
	list := `{"kind": "List", "items": [` + strings.Join([]string{node("a", own), node("b", twice), node("c", filler), node("d", strings.ToUpper(twice))}, ",\n") + `]}`
	s, r := Parse(files("site.yaml", head+"inventory: nodes.json\n", "nodes.json", list), "site.yaml")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	for i, want := range []string{own, "", "", ""} {
		if got := strings.Join(s.Nodes()[i].Match.UUIDs, " "); got != want {
			t.Errorf("%s: UUIDs %q, want %q", s.Nodes()[i].Name, got, want)
		}
	}
	said := fmt.Sprint(r.Problems)
	for _, name := range []string{"b", "c", "d"} {
		if want := "node " + name + " is matched by its name alone"; !strings.Contains(said, want) {
			t.Errorf("problems = %s, want %q", said, want)
		}
	}
}

// A scalar is its text, whatever YAML or Helm would make of it.
func TestLiteralScalars(t *testing.T) {
	for _, text := range []string{"2000000", "1048576", "0640", "on", "off", "yes", "true", "1:2", "1e3", "0x10", "1_000", ".5", "007", "-1", "4096 87380 16777216", "2026-01-01", "=", "0o17", "+1", "1.10"} {
		s := mustParse(t, head+"nodes: [{name: a}]\nconf:\n  sysctl:\n    net.x.y: "+text+"\n    net.x.quoted: '"+text+"'\n")
		o, err := s.Overlay("a", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range o.Items.Sysctl {
			if k.Value != text {
				t.Errorf("%s: %q, want %q", k.Key, k.Value, text)
			}
		}
	}
	s := mustParse(t, head+"nodes: [{name: a, labels: {on: yes, n: 010}}]\nconf: {perm: {paths: [{path: /srv, permissions: 0640}, {path: /srv, permissions: 4755}, {path: /srv, permissions: 'u=rw,go='}]}}\n")
	o, err := s.Overlay("a", "")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"0640", "4755", "u=rw,go="} {
		if got := o.Items.Perm.Paths[i].Mode; got != want {
			t.Errorf("mode %d = %q, want %q", i, got, want)
		}
	}
	if l := s.Nodes()[0].Labels; l["on"] != "yes" || l["n"] != "010" {
		t.Errorf("labels = %v", l)
	}
}

// Files are merged in order, keys meet in whatever spelling, and each value
// keeps its file.
func TestSeveralFiles(t *testing.T) {
	s, r := Parse(files("base.yaml", "conf:\n  sysctl: {net.ipv4.ip_forward: 0, vm.swappiness: 1, kernel.panic: 3}\n",
		"over.yaml", "conf:\n  sysctl:\n    net/ipv4/ip_forward: 1\n    kernel.panic:\n"), "base.yaml", "over.yaml")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	e, err := s.Explain("any", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"/conf/sysctl/net.ipv4.ip_forward": "over.yaml:3", "/conf/sysctl/vm.swappiness": "base.yaml:2"}
	if len(e.Origins) != len(want) {
		t.Errorf("origins = %v", e.Origins)
	}
	for p, place := range want {
		o := e.Origins[p]
		if got := fmt.Sprintf("%s:%d", o.File, o.Line); got != place || o.Source != "base" {
			t.Errorf("%s from %s (%s), want %s", p, got, o.Source, place)
		}
	}
}

func TestCAFiles(t *testing.T) {
	pem, err := os.ReadFile("testdata/ca.pem")
	if err != nil {
		t.Fatal(err)
	}
	s, r := Parse(files("fleet/site.yaml", head+"nodes: [{name: a}, {name: b}]\nmachine:\n  cas: [ca.pem]\n  overrides: {hosts: [{name: b, conf: {cas: []}}]}\n", "fleet/ca.pem", string(pem)), "fleet/site.yaml")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	a, _ := s.Overlay("a", "")
	b, _ := s.Overlay("b", "")
	if len(a.CAs) != 1 || a.CAs[0] != string(pem) || len(b.CAs) != 0 {
		t.Errorf("a %d, b %d certificates", len(a.CAs), len(b.CAs))
	}
	if tr := s.Trust(); !slices.Equal(tr.Operator, []string{"fleet/keys/operator.pub"}) {
		t.Errorf("operator keys %v are not beside the site", tr.Operator)
	}
}

// What has no end, or means to have none, is refused with a word.
func TestHostileInput(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 20; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), i-1)
	}
	var merge strings.Builder
	merge.WriteString("a0: &a0 {x: 1}\n")
	for i := 1; i < 24; i++ {
		fmt.Fprintf(&merge, "a%d: &a%d {k%d: *a%d, '<<': [*a%d, *a%d]}\n", i, i, i, i-1, i-1, i-1)
	}
	var chain strings.Builder
	chain.WriteString("a0: &a0 {x: 1}\n")
	for i := 1; i < 200; i++ {
		fmt.Fprintf(&chain, "a%d: &a%d {x: *a%d}\n", i, i, i-1)
	}
	for name, tt := range map[string]struct{ text, rule string }{
		"alias bomb":  {bomb.String(), "too-large"},
		"merge bomb":  {strings.ReplaceAll(merge.String(), "'<<'", "<<"), "too-large"},
		"alias chain": {chain.String(), "too-deep"},
		"own alias":   {"a: &a [*a]\n", "alias"},
		"deep":        {strings.Repeat("[", 9000), "yaml"},
		"deep closed": {strings.Repeat("[", 500) + strings.Repeat("]", 500), "too-deep"},
		"deep maps":   {strings.Repeat("{a: ", 500) + strings.Repeat("}", 500), "too-deep"},
		"many values": {"[" + strings.Repeat("[],", 1<<20) + "]", "too-large"},
		"huge scalar": {"conf: \"" + strings.Repeat("x", tree.MaxFile) + "\"\n", "too-large"},
		"other tag":   {"conf: !ruby/object {}\nmanifests: !x y\n", "tag"},
		"nul":         {"conf: {sysctl: {vm.swappiness: \"\\0\"}}\n", "text"},
		"map as key":  {"? {a: b}\n: c\n", "key"},
		"not UTF-8":   {"conf: \xff\xfe\n", "yaml"},
		"empty":       {"", "form"},
		"scalar":      {"hello\n", "form"},
		"merge text":  {"<<: x\nconf: {}\n", "merge-key"},
	} {
		t.Run(name, func(t *testing.T) {
			_, r := Parse(files("site.yaml", tt.text), "site.yaml")
			if !slices.ContainsFunc(r.Problems, func(p report.Problem) bool { return p.Severity == report.Error && p.Rule == tt.rule }) {
				t.Errorf("want an error of rule %s, got %v", tt.rule, r.Err())
			}
			var b bytes.Buffer
			r.Write(&b)
			if b.Len() > 1<<20 {
				t.Errorf("the report has %d bytes", b.Len())
			}
		})
	}
}

// TestNamesOfFiles: what a file is called steers no terminal, and several are not one.
func TestNamesOfFiles(t *testing.T) {
	const nodes = "nodes: [{name: a}]\n"
	for want, names := range map[string][]string{"no?des.yaml": {"no\x1bdes.yaml"}, "": {"a.yaml", "b.yaml"}} {
		_, r := Parse(files("no\x1bdes.yaml", nodes, "a.yaml", nodes, "b.yaml", nodes), names...)
		if len(r.Problems) != 1 || r.Problems[0].Rule != "form" || r.Problems[0].File != want {
			t.Errorf("%q: %+v", names, r.Problems)
		}
	}
}

// TestManyMerges: a list of very many maps to merge takes time by their number, not by its square.
func TestManyMerges(t *testing.T) {
	text := "a: &a [{x: 1}]\nb: {<<: [" + strings.Repeat("*a, ", 300_000) + "{y: 2}]}\n"
	docs := tree.Parse(&report.Source{Name: "many.yaml"}, []byte(text), &report.Report{})
	if len(docs) != 1 || len(docs[0].Fields) != 2 {
		t.Fatalf("%d documents", len(docs))
	}
	if b := docs[0].Get("b"); len(b.Fields) != 2 || b.Fields[0].Key != "x" || b.Fields[1].Key != "y" {
		t.Errorf("merged to %v", b.Fields)
	}
}

// Warnings without end leave room for the errors that come after them.
func TestErrorsAreNotCrowdedOut(t *testing.T) {
	var text strings.Builder
	text.WriteString("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: test}\nconf:\n  files:\n")
	for i := range report.MaxProblems + 1 {
		fmt.Fprintf(&text, "    f%d: {path: /etc/f%d, content: \"{{ .Values.x }}\"}\n", i, i)
	}
	text.WriteString("nodes: [{name: a}, {name: a}]\n")
	if _, r := Parse(files("site.yaml", text.String()), "site.yaml"); r.Err() == nil || len(r.Problems) > report.MaxProblems {
		t.Errorf("two nodes of one name are valid among %d problems", len(r.Problems))
	}
}

// A site that names itself, or a file that is not there.
func TestFileReferences(t *testing.T) {
	for text, rule := range map[string]string{
		head + "values: [site.yaml]\n":           "file",
		head + "values: [site2.yaml]\n":          "form",
		head + "inventory: [missing.yaml]\n":     "file",
		head + "inventory: ['../../../etc/x']\n": "file",
		"nodes: [{name: a}]\n":                   "form",
	} {
		_, r := Parse(files("site.yaml", text, "site2.yaml", head), "site.yaml")
		if r.Err() == nil || r.Problems[0].Rule != rule {
			t.Errorf("%q: %v", text, r.Problems)
		}
	}
	if _, r := Parse(files(), "none.yaml"); r.Err() == nil || !strings.Contains(r.Err().Error(), "none.yaml: read none.yaml: file does not exist") {
		t.Errorf("err = %v", r.Err())
	}
}

// An overlay that no node would read is refused before it is published.
func TestOverlayCap(t *testing.T) {
	var b strings.Builder
	b.WriteString(head + "nodes: [{name: a}]\nconf:\n  exec:\n")
	for i := range 12 {
		fmt.Fprintf(&b, "    s%d: {rerun_policy: never, data: \"#!/bin/sh %s\"}\n", i, strings.Repeat("x", 200<<10))
	}
	s := mustParse(t, b.String())
	if _, err := s.Compile("a", "", ""); err == nil || !strings.Contains(err.Error(), "a node reads at most") {
		t.Errorf("err = %v", err)
	}
}

// What Divingbell ignores is a warning in its own files, and an error in a Site.
func TestLenientValues(t *testing.T) {
	const values = "conf:\n  sysctl: {vm.swappiness: 1}\n  sysctls: {}\n  overrides: {divingbell-sysctl: {}}\nimage: {}\n"
	for name, fsys := range map[string][2]string{
		"alone":     {values, "v.yaml"},
		"in a site": {head + "values: [v.yaml]\n", "site.yaml"},
	} {
		s, r := Parse(files(fsys[1], fsys[0], "v.yaml", values), fsys[1])
		if s == nil || r.Count(report.Warning) != 3 {
			t.Errorf("%s: %v", name, r.Problems)
		}
	}
	if s, r := Parse(files("site.yaml", head+values), "site.yaml"); s != nil || r.Count(report.Error) != 3 {
		t.Errorf("in the site itself: %v", r.Problems)
	}
}

func TestArmadaIsNotRendered(t *testing.T) {
	s, r := Parse(files("a.yaml", `schema: armada/Chart/v1
metadata:
  name: divingbell
  layeringDefinition: {abstract: true, layer: global}
  substitutions:
  - {src: {schema: x, name: y, path: .}, dest: {path: .values.conf.uamlite}}
data: {values: {conf: {sysctl: {vm.swappiness: 1}}}}
`), "a.yaml")
	if s == nil || r.Count(report.Warning) != 2 {
		t.Errorf("problems = %v", r.Problems)
	}
}

// What a file holds must not steer the terminal of who reads the report.
func TestReportIsHarmless(t *testing.T) {
	_, r := Parse(files("site.yaml", head+"\"a\\e[2J\": 1\nconf:\n  exec:\n    \"x\\e[31m\": {data: \"#!\\e[0m\", timeout: \"\\e]0;\\a\", \"\\u202e\": 1}\n"), "site.yaml")
	var b strings.Builder
	r.Write(&b)
	for _, p := range r.Problems {
		b.WriteString(p.String())
	}
	if r.Count(report.Error) < 3 || strings.ContainsAny(b.String(), "\x1b\a\u202e") {
		t.Errorf("%q", b.String())
	}
}
