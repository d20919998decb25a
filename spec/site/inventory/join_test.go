// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

const (
	uuidA = "6f1c2a4e-58a1-4c3b-9b61-0d5f3c2b7a11"
	uuidB = "6f1c2a4e-58a1-4c3b-9b61-0d5f3c2b7a22"
)

// join joins nodes of a site and Nodes of a cluster, and says what comes of them, a line each.
func join(t *testing.T, nodes, entry string, members ...Member) (string, *report.Report) {
	t.Helper()
	c := &shape.Checker{Report: &report.Report{}}
	src := &report.Source{Name: "site.yaml", Data: []byte("nodes: " + nodes + "\ninventory: [{cluster: {" + entry + "}}]\n")}
	var d struct {
		Nodes     []NodeDoc  `site:"nodes"`
		Inventory SourcesDoc `site:"inventory"`
	}
	c.Decode(tree.Parse(src, src.Data, c.Report)[0], &d)
	joined, left := Join(c, Check(c, d.Nodes), d.Inventory[0].Cluster.Select(c, members))
	var out []string
	for _, n := range joined {
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
			labels = append(labels, key+"="+n.Labels[key])
		}
		out = append(out, strings.TrimSpace(fmt.Sprint(n.Name, labels, n.Match.MACs, n.Match.UUIDs)))
	}
	for _, l := range left {
		out = append(out, l.Name+": "+l.Why)
	}
	return strings.Join(out, "\n"), c.Report
}

// What a kubelet may say of itself counts only where the site takes its word, and never
// against what the site says.
func TestJoin(t *testing.T) {
	for _, tt := range []struct {
		name, nodes, entry string
		members            []Member
		want               string
	}{
		{"labels that only an administrator gives count", "[]", "", []Member{{"a", map[string]string{"node-restriction.kubernetes.io/role": "db", "compute_type": "gpu", "kubernetes.io/hostname": "b"}, uuidA}},
			"a[node-restriction.kubernetes.io/role=db] [] []"},
		{"and those that the site names", "[]", "trustKubeletLabels: [compute_type]", []Member{{"a", map[string]string{"compute_type": "gpu", "rack": "1"}, ""}}, "a[compute_type=gpu] [] []"},
		{"Nodes are chosen by them", "[]", "labels: [node-restriction.kubernetes.io/fleet=x, node-restriction.kubernetes.io/in]", []Member{
			{"a", map[string]string{"node-restriction.kubernetes.io/fleet": "x", "node-restriction.kubernetes.io/in": ""}, ""},
			{"b", map[string]string{"node-restriction.kubernetes.io/fleet": "y", "node-restriction.kubernetes.io/in": ""}, ""},
			{"c", map[string]string{"node-restriction.kubernetes.io/fleet": "x"}, ""}}, "a[node-restriction.kubernetes.io/fleet=x node-restriction.kubernetes.io/in=] [] []"},
		{"a UUID is an identifier where the site takes it", "[]", "trustKubeletUUIDs: true", []Member{{"a", nil, strings.ToUpper(uuidA)}}, "a[] [] [" + uuidA + "]"},
		{"and not one of many machines", "[]", "trustKubeletUUIDs: true", []Member{{"a", nil, "03000200-0400-0500-0006-000700080009"}, {"b", nil, uuidB}},
			"b[] [] [" + uuidB + "]\na: its kubelet says the UUID 03000200-0400-0500-0006-000700080009, which firmware has where nobody set one"},
		{"the site has the last word", "[{name: a, labels: {role: db}, match: {macs: ['52:54:00:00:00:01']}}]", "trustKubeletLabels: [role, rack], trustKubeletUUIDs: true",
			[]Member{{"a", map[string]string{"role": "web", "rack": "1"}, uuidA}}, "a[rack=1 role=db] [52:54:00:00:00:01] []"},
		{"who says another's UUID is left out, and the other is not", "[{name: b, match: {uuids: [" + uuidB + "]}}]", "", []Member{{"a", nil, uuidB}, {"b", nil, uuidB}, {"c", nil, ""}},
			"b[] [] [" + uuidB + "]\nc[] [] []\na: its kubelet says the UUID " + uuidB + ", which the site gives to b"},
		{"and so where UUIDs are taken", "[{name: b, match: {uuids: [" + uuidB + "]}}]", "trustKubeletUUIDs: true", []Member{{"a", nil, uuidB}, {"b", nil, uuidB}},
			"b[] [] [" + uuidB + "]\na: its kubelet says the UUID " + uuidB + ", which the site gives to b"},
		{"who is another than the site says is left out", "[{name: a, match: {uuids: [" + uuidA + "]}}, {name: b}]", "", []Member{{"a", nil, uuidB}, {"b", nil, ""}},
			"b[] [] []\na: its kubelet says the UUID " + uuidB + ", and the site gives it " + uuidA},
		{"two that say one are both left out", "[]", "trustKubeletUUIDs: true", []Member{{"a", nil, uuidA}, {"b", nil, uuidA}, {"c", nil, uuidB}},
			"c[] [] [" + uuidB + "]\na: its kubelet says the UUID " + uuidA + ", and so does that of b\nb: its kubelet says the UUID " + uuidA + ", and so does that of a"},
		{"two that say one that does not count are not", "[]", "", []Member{{"a", nil, uuidA}, {"b", nil, uuidA}}, "a[] [] []\nb[] [] []"},
		{"who says none cannot be found by it", "[]", "trustKubeletUUIDs: true", []Member{{"a", nil, "Not Settable"}, {"b", nil, uuidB}}, "b[] [] [" + uuidB + "]\na: its kubelet says no UUID"},
		{"a name that no node can have", "[]", "", []Member{{"mac-525400000001", nil, ""}, {"b", nil, ""}}, "b[] [] []\nmac-525400000001: node name \"mac-525400000001\" begins with mac- or uuid-: overlays are found by such tags"},
		{"no Node", "[{name: a}]", "", nil, "a[] [] []"},
	} {
		got, r := join(t, tt.nodes, tt.entry, tt.members...)
		if got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
		if err := r.Err(); err != nil {
			t.Errorf("%s: %v: what a kubelet says must not keep others from being published", tt.name, err)
		}
		if out := strings.Count(got, "\n") + 1 - strings.Count(got, "["); out > 0 && r.Count(report.Warning) != out {
			t.Errorf("%s: %d nodes are left out, and %d warnings say so", tt.name, out, r.Count(report.Warning))
		}
	}
}

// A label that a kubelet gives itself chooses no Nodes: it would choose its fleet.
func TestSelectByKubeletLabel(t *testing.T) {
	if _, r := join(t, "[]", "labels: [fleet=x]", Member{Name: "a", Labels: map[string]string{"fleet": "x"}}); r.Count(report.Error) != 1 || r.Problems[0].Rule != "kubelet-label" {
		t.Errorf("%+v", r.Problems)
	}
	if got, r := join(t, "[]", "labels: [fleet=x], trustKubeletLabels: [fleet]", Member{Name: "a", Labels: map[string]string{"fleet": "x"}}); r.Err() != nil || got != "a[fleet=x] [] []" {
		t.Errorf("%s %+v", got, r.Problems)
	}
	if _, r := join(t, "[]", ""); r.Err() != nil || r.Problems[0].Rule != "no-node" {
		t.Errorf("%+v", r.Problems)
	}
}

// Entries that mean the same Node are one: the first.
func TestJoinTwoEntries(t *testing.T) {
	c := &shape.Checker{Report: &report.Report{}}
	a := Member{Name: "a", Labels: map[string]string{"x": "1", "y": "2"}}
	first, second := ClusterDoc{Trust: []shape.Text{{S: "x"}}}, ClusterDoc{Trust: []shape.Text{{S: "y"}}}
	nodes, left := Join(c, nil, append(first.Select(c, []Member{a}), second.Select(c, []Member{a})...))
	if len(nodes) != 1 || len(left) != 0 || len(nodes[0].Labels) != 1 || nodes[0].Labels["x"] != "1" {
		t.Errorf("%+v %+v", nodes, left)
	}
}

func TestMembers(t *testing.T) {
	got, err := Members([]byte(`{"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "a", "labels": {"x": "1"}}, "status": {"nodeInfo": {"systemUUID": "u"}}}]}`))
	if err != nil || len(got) != 1 || got[0].Name != "a" || got[0].Labels["x"] != "1" || got[0].UUID != "u" {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := Members([]byte("error")); err == nil {
		t.Error("what is not JSON was read")
	}
}
