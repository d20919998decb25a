// SPDX-License-Identifier: Apache-2.0

package unknown

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/spec/site"
)

// TestRows: whatever machines call themselves, their rows are those of a valid site, one each. Who asks
// later by a name does not take it, and who asks by another's address has neither row taken unseen.
func TestRows(t *testing.T) {
	var list []Machine
	add := func(from string, after int, names []string, macs ...string) {
		when := at.Add(time.Duration(after) * time.Minute)
		list = append(list, Machine{From: from, Names: names, MACs: macs, First: when, Last: when})
	}
	add("192.0.2.200", 0, []string{"rack1"}, "52:54:00:aa:00:01")
	for i := range 50 {
		add(fmt.Sprintf("192.0.2.%d", i), i, []string{"localhost"}, fmt.Sprintf("52:54:00:00:00:%02x", i))
	}
	add("192.0.2.201", 60, []string{"localhost"}, "52:54:00:00:00:00") // the first has a new lease
	add("203.0.113.1", 61, []string{"rack1"}, "52:54:00:ee:00:01")
	add("203.0.113.2", 62, nil, "52:54:00:aa:00:02")
	add("203.0.113.3", 63, []string{"rack3"}, "52:54:00:aa:00:02", "52:54:00:ee:00:02") // one of the two lies
	add("203.0.113.4", 64, []string{strings.Repeat("a", 63)})
	add("203.0.113.5", 65, []string{strings.Repeat("a", 63)}, "52:54:00:ee:00:03")
	add("203.0.113.6", 66, []string{"Rack_1"})
	add("203.0.113.7", 67, []string{"7"})
	add("203.0.113.8", 68, []string{"7"})
	rows := Rows(list)
	text, all := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nnodes:\n", map[string]string{}
	for _, r := range rows {
		text, all[r.From] = text+r.Node+"\n", r.Node
	}
	if s, r := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml"); r.Err() != nil || len(s.Nodes()) != 50+2+2+2 || len(rows) != 50+2+2+2+2 {
		t.Errorf("%d rows, %v in\n%s", len(rows), r.Err(), text)
	}
	for from, want := range map[string]string{
		"192.0.2.200": `- {name: rack1, match: {macs: ["52:54:00:aa:00:01"]}}`,
		"192.0.2.201": `- {name: localhost, match: {macs: ["52:54:00:00:00:00"]}}`,
		"192.0.2.1":   `- {name: localhost-2, match: {macs: ["52:54:00:00:00:01"]}}`,
		"192.0.2.49":  `- {name: localhost-50, match: {macs: ["52:54:00:00:00:31"]}}`,
		"203.0.113.1": `- {name: rack1-2, match: {macs: ["52:54:00:ee:00:01"]}}`,
		"203.0.113.2": `# - {name: new-525400aa0002, match: {macs: ["52:54:00:aa:00:02"]}} # another asked by 52:54:00:aa:00:02, too`,
		"203.0.113.6": "- {name: new}",
		"203.0.113.8": "- {name: new-2}",
	} {
		if all[from] != want {
			t.Errorf("%s: %q, want %q", from, all[from], want)
		}
	}
	if first := rows[len(rows)-1]; first.From != "192.0.2.200" || rows[0].From != "203.0.113.8" {
		t.Errorf("from %s to %s", rows[0].From, first.From)
	}
	for _, r := range rows {
		if r.From == "192.0.2.201" && !r.First.Equal(at) {
			t.Errorf("it asked first at %s", r.First)
		}
	}
}

// A list is there before anybody asks, keeps what it has, and has a place.
func TestMake(t *testing.T) {
	file := filepath.Join(t.TempDir(), "unknown.json")
	if err := Make(file); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(list)) != "[]" {
		t.Errorf("%q, %v", list, err)
	}
	if err := os.WriteFile(file, []byte(`[{"macs":["52:54:00:00:00:01"],"from":"192.0.2.1"}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Make(file); err != nil {
		t.Fatal(err)
	}
	if list, err := Read(file); err != nil || len(list) != 1 || list[0].ID() != "52:54:00:00:00:01" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := Make(filepath.Join(file, "unknown.json")); err == nil {
		t.Error("a list below a file is made")
	}
}
