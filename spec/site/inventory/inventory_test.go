// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

func check(t *testing.T, text string) ([]Node, *report.Report) {
	t.Helper()
	c := &shape.Checker{Report: &report.Report{}}
	src := &report.Source{Name: "nodes.yaml", Data: []byte(text)}
	var d Doc
	c.Decode(tree.Parse(src, src.Data, c.Report)[0], &d)
	return Check(c, d.Nodes), c.Report
}

// Identifiers are brought to one spelling, so that two of one machine meet.
func TestIdentifiers(t *testing.T) {
	nodes, r := check(t, "nodes:\n- {name: a, match: {macs: [52-54-00-12-34-AB, 5254.0012.34ac], uuids: [6F1C2A4E-58A1-4C3B-9B61-0D5F3C2B7A11]}}\n")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	m := nodes[0].Match
	if got := strings.Join(append(m.MACs, m.UUIDs...), " "); got != "52:54:00:12:34:ab 52:54:00:12:34:ac 6f1c2a4e-58a1-4c3b-9b61-0d5f3c2b7a11" {
		t.Errorf("match is %s", got)
	}
	for _, same := range []string{"macs: ['52:54:00:12:34:ab']", "uuids: [6f1c2a4e-58a1-4c3b-9b61-0d5f3c2b7a11]"} {
		if _, r := check(t, "nodes:\n- {name: a, match: {macs: [52-54-00-12-34-AB], uuids: [6F1C2A4E-58A1-4C3B-9B61-0D5F3C2B7A11]}}\n- {name: b, match: {"+same+"}}\n"); r.Err() == nil {
			t.Errorf("two nodes have %s", same)
		}
	}
	for _, none := range []string{"00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "52:54", "zz:54:00:12:34:ab"} {
		if _, r := check(t, "nodes: [{name: a, match: {macs: ['"+none+"']}}]\n"); r.Err() == nil {
			t.Errorf("%s is an address", none)
		}
	}
}

func TestLabel(t *testing.T) {
	n := Node{Name: "a", Labels: map[string]string{"role": "db", "kubernetes.io/os": "other"}}
	for key, want := range map[string]string{"role": "db", "kubernetes.io/hostname": "a", "kubernetes.io/os": "other"} {
		if got, ok := n.Label(key); !ok || got != want {
			t.Errorf("label %s is %q, %v; want %q", key, got, ok, want)
		}
	}
	if v, ok := (Node{Name: "a"}).Label("kubernetes.io/os"); !ok || v != "linux" {
		t.Errorf("every node's system is %q", v)
	}
	if v, ok := n.Label("none"); ok {
		t.Errorf("a label that is not there is %q", v)
	}
}

func TestDidYouMean(t *testing.T) {
	nodes := []Node{{Name: "node1"}, {Name: "other"}}
	if hint := DidYouMean("node2", nodes); !strings.Contains(hint, "node1") {
		t.Errorf("hint %q", hint)
	}
	if hint := DidYouMean("something", nodes); !strings.Contains(hint, "nodes are called node1 other") {
		t.Errorf("hint %q", hint)
	}
}

func TestHardware(t *testing.T) {
	for mac, want := range map[string]bool{
		"3c:fd:fe:12:34:56": true, "b8:59:9f:00:00:01": true,
		"52:54:00:12:34:56": false, "42:01:0a:00:00:02": false, "02:00:00:00:00:01": false, // chosen locally
		"00:50:56:00:00:01": false, "00:15:5d:00:00:01": false, "08:00:27:00:00:01": false, "": false,
	} {
		if got := Hardware(mac); got != want {
			t.Errorf("%q: hardware %v, want %v", mac, got, want)
		}
	}
}
