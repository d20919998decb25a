// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
	"github.com/caisson-os/caisson/test/require"
)

// long writes a list of nodes that is read in several parts.
func long(indent string) string {
	var b strings.Builder
	for i := range 5_000 {
		fmt.Fprintf(&b, "%s- {name: node-%06d, labels: {role: 'a, b', rack: r%d},\n%s   match: {macs: ['52:54:00:00:%02x:%02x']}}\n", indent, i, i/40, indent, i>>8, i&255)
		if i%1000 == 0 {
			fmt.Fprintf(&b, "# a rack\n\n%s- name: other-%d\n%s  labels:\n%s    note: >-\n%s      a text\n%s      - that looks like an entry\n", indent, i, indent, indent, indent, indent)
		}
	}
	return b.String()
}

// readWhole reads a file without parts.
func readWhole(text string) *Reader {
	r := &Reader{Checker: &shape.Checker{Report: &report.Report{}}}
	src := &report.Source{Name: "nodes.yaml", Data: []byte(text)}
	for _, doc := range tree.Parse(src, src.Data, r.Report) {
		r.one(src, doc, false)
	}
	return r
}

func readNodes(text string) *Reader {
	return Read(&shape.Checker{Report: &report.Report{}}, nil, fstest.MapFS{"nodes.yaml": {Data: []byte(text)}}, []string{"nodes.yaml"})
}

func problems(r *report.Report) (list []string) {
	for _, p := range r.Problems {
		list = append(list, p.String()+p.Rule+p.Hint)
	}
	return list
}

// A long list of nodes is the same read in parts as it is whole, places in it included.
func TestLongLists(t *testing.T) {
	for what, text := range map[string]string{
		"a list":           long(""),
		"an indented list": "# nodes\n---\n" + long("  "),
		"below a key":      "nodes: # all\n" + long(""),
		"indented":         "---\nnodes:\n\n" + long("  "),
	} {
		src := &report.Source{Name: "nodes.yaml", Data: []byte(text)}
		parts := &Reader{Checker: &shape.Checker{Report: &report.Report{}}}
		if !parts.longList(src, src.Data) {
			t.Errorf("%s: is read whole", what)
			continue
		}
		whole := readWhole(text)
		if whole.Report.Err() != nil || len(whole.Nodes) != 5_005 {
			t.Fatalf("%s: %d nodes, %v", what, len(whole.Nodes), whole.Report.Err())
		}
		if !reflect.DeepEqual(parts.Nodes, whole.Nodes) {
			for i := range min(len(parts.Nodes), len(whole.Nodes)) {
				if !reflect.DeepEqual(parts.Nodes[i], whole.Nodes[i]) {
					t.Errorf("%s: node %d is %+v, whole %+v", what, i, parts.Nodes[i], whole.Nodes[i])
					break
				}
			}
			t.Errorf("%s: %d nodes, whole %d", what, len(parts.Nodes), len(whole.Nodes))
		}
		for i, n := range parts.Nodes[:100] {
			if line := strings.Split(text, "\n")[n.Name.At.Line-1]; !strings.HasPrefix(line[n.Name.At.Col-1:], n.Name.S) {
				t.Errorf("%s: node %d is not at %s", what, i, n.Name.At)
			}
		}
	}
}

// What is not a long list of sound nodes is read whole: it says what it always said, at
// its place, and means what it always meant.
func TestLongListsWithFaults(t *testing.T) {
	require.Slow(t)
	for what, text := range map[string]string{
		"an unknown key at the end": long("") + "- {name: x, lables: {a: b}}\n",
		"a text instead of a node":  long("") + "- x\n" + long(""),
		"not YAML":                  long("") + "- {name: 'x}\n" + long(""),
		"an anchor":                 "- &a {name: x}\n" + long("") + "- {name: y, labels: *a}\n",
		"another key":               "nodes:\n" + long("") + "more: 1\n",
		"another list":              "conf:\n" + long("") + "\n",
		"a second document":         long("") + "---\nnodes: [{name: x}]\n",
		"a key below a list":        long("") + "nodes: []\n",
	} {
		src := &report.Source{Name: "nodes.yaml", Data: []byte(text)}
		if r := (&Reader{Checker: &shape.Checker{Report: &report.Report{}}}); r.longList(src, src.Data) {
			t.Errorf("%s: it is read in parts", what)
		}
		whole, got := readWhole(text), readNodes(text)
		got.Report.Problems = got.Report.Problems[:min(len(got.Report.Problems), len(whole.Report.Problems))] // "nothing but nodes" may follow
		if len(whole.Nodes) != len(got.Nodes) || !reflect.DeepEqual(problems(whole.Report), problems(got.Report)) {
			t.Errorf("%s: %d nodes, %q; whole %d, %q", what, len(got.Nodes), problems(got.Report), len(whole.Nodes), problems(whole.Report))
		}
	}
}
