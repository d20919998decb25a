// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/inventory"
)

var other = spec.Match{MACs: []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}, UUIDs: []string{"11111111-2222-3333-4444-555555555555"}}

const macs, uuids = `macs: ["52:54:00:00:00:01", "52:54:00:00:00:02"]`, `uuids: ["11111111-2222-3333-4444-555555555555"]`

func nodesOf(t *testing.T, text string) []inventory.Node {
	t.Helper()
	s, r := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
	if r.Err() != nil {
		t.Fatalf("%v in\n%s", r.Err(), text)
	}
	return s.Nodes()
}

// TestRematch: the row gets its identifiers, and nothing else of the file moves.
func TestRematch(t *testing.T) {
	const head = "# ours\napiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x} # the fleet\nnodes:\n"
	for _, row := range []struct{ name, was, want string }{
		{"flow", "- {name: b, match: {macs: [52:54:00:aa:00:01]}} # rack 1\n", "- {name: b, match: {" + macs + ", " + uuids + "}} # rack 1\n"},
		{"flow with labels", "- {labels: {rack: \"}\"}, name: \"b\", match: {uuids: ['11111111-2222-3333-4444-66666666666a']}, }\n", "- {labels: {rack: \"}\"}, name: \"b\", match: {" + macs + ", " + uuids + "}, }\n"},
		{"flow over lines", "- {name: b, match: {macs: [ # }\n    \"52:54:00:aa:00:01\",\n  ]} }\n", "- {name: b, match: {" + macs + ", " + uuids + "} }\n"},
		{"block", "- name: b # the board\n  match:\n    # on the lid\n    macs:\n    - 52:54:00:aa:00:01\n    - \"52:54:00:aa:00:02\" # the second\n  labels: {rack: r1}\n",
			"- name: b # the board\n  match:\n    # on the lid\n    " + macs + "\n    " + uuids + " # the second\n  labels: {rack: r1}\n"},
		{"block of flow", "- match:\n      macs: [52:54:00:aa:00:01]\n  name: b\n", "- match:\n      " + macs + "\n      " + uuids + "\n  name: b\n"},
		{"none in a flow", "- {name: b, labels: {rack: ä}}\n", "- {name: b, match: {" + macs + ", " + uuids + "}, labels: {rack: ä}}\n"},
		{"none in a block", "- name: 'b' # the board\n  labels: {rack: r1}\n", "- name: 'b' # the board\n  match: {" + macs + ", " + uuids + "}\n  labels: {rack: r1}\n"},
		{"behind signs of two bytes", "- {labels: {rack: äöü}, name: b, match: {macs: [52:54:00:aa:00:01]}}\n", "- {labels: {rack: äöü}, name: b, match: {" + macs + ", " + uuids + "}}\n"},
		{"no end of line", "- name: b", "- name: b\n  match: {" + macs + ", " + uuids + "}"},
		{"carriage returns", "- {name: b, match: {macs: [52:54:00:aa:00:01]}}\r\n", "- {name: b, match: {" + macs + ", " + uuids + "}}\r\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			const a = "- {name: a, match: {macs: [52:54:00:bb:00:01]}}\n"
			nodes := nodesOf(t, head+a+row.was)
			got, err := inventory.Rematch(nodes[1], other)
			if err != nil || string(got) != head+a+row.want {
				t.Fatalf("%v\n%s\nwant\n%s", err, got, head+a+row.want)
			}
			if again := nodesOf(t, string(got)); !slices.Equal(again[1].Match.MACs, other.MACs) || !slices.Equal(again[1].Match.UUIDs, other.UUIDs) || again[0].Match.MACs[0] != "52:54:00:bb:00:01" {
				t.Errorf("%+v", again)
			}
		})
	}
}

// TestRematchJSON: JSON is YAML; what kubectl wrote is not a row.
func TestRematchJSON(t *testing.T) {
	text := "{\"apiVersion\": \"caisson.dev/v1alpha1\", \"kind\": \"Site\", \"metadata\": {\"name\": \"x\"},\n \"nodes\": [{\"name\": \"b\", \"match\": {\"macs\": [\"52:54:00:aa:00:01\"]}}]}\n"
	got, err := inventory.Rematch(nodesOf(t, text)[0], other)
	if err != nil || len(nodesOf(t, string(got))[0].Match.MACs) != 2 {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := inventory.Rematch(inventory.Node{Name: "b"}, other); !errors.Is(err, inventory.ErrNoRow) {
		t.Error(err)
	}
}

// FuzzRematch: whatever a row looks like, the text that comes of it is read without a fault, and where it
// has the same nodes, the one has its identifiers.
func FuzzRematch(f *testing.F) {
	for _, row := range []string{"- {name: b}", "- name: b\n  match: &m\n    macs: [52:54:00:aa:00:01]\n- {name: c, match: {}}", "- {name: b, match: {macs: ['52-54-00-aa-00-01']}} # }", "- ? name\n  : b"} {
		f.Add(row)
	}
	f.Fuzz(func(t *testing.T, row string) {
		if strings.Contains(row, "\x00") {
			return
		}
		text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nnodes:\n" + row + "\n"
		s, r := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
		if r.Err() != nil || len(s.Nodes()) == 0 {
			return
		}
		got, err := inventory.Rematch(s.Nodes()[0], other)
		if err != nil {
			return
		}
		_, _ = site.Parse(fstest.MapFS{"site.yaml": {Data: got}}, "site.yaml") // it ends
	})
}
