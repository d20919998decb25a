// SPDX-License-Identifier: Apache-2.0

package site

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/report"
)

const swapping = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
layer: {base: {debian: {suite: trixie}}}
nodes: [{name: stor-01, labels: {role: storage, rack: r1}}, {name: web, labels: {rack: r2}}]
swap:
- windows: [night]
  slot: {by: rack, max: 1, fleetlock: "https://lock.example"}
- nodes: [storage]
  windows: [weekend]
  when: [{absent: /run/busy}, {command: {argv: [/bin/true], timeout: 1m}}]
  drain: {check: {argv: [/bin/a], timeout: 1m}, exec: {argv: [/bin/b], timeout: 1m}, undo: {argv: [/bin/c], timeout: 1m}}
  soak: 10m
---
apiVersion: caisson.dev/v1alpha1
kind: NodeSet
metadata: {name: storage}
spec: {match: {labels: {role: storage}}}
---
apiVersion: caisson.dev/v1alpha1
kind: MaintenanceWindow
metadata: {name: night}
spec: {timeZone: UTC, duration: 4h, opens: [{weekly: mon, at: "22:00"}]}
---
apiVersion: caisson.dev/v1alpha1
kind: MaintenanceWindow
metadata: {name: weekend}
spec: {timeZone: UTC, duration: 4h, opens: [{weekly: sat, at: "22:00"}]}
`

// TestASwapReachesItsNodes: the last entry that is for a node counts, alone, and its
// windows and slots are among those of the node's maintenance.
func TestASwapReachesItsNodes(t *testing.T) {
	s := operatingAt(t, swapping, "2026-11-21")
	command := func(name string) spec.Command { return spec.Command{Argv: []string{name}, Timeout: 60} }
	for node, want := range map[string]*spec.LayerSwap{
		"web": {Windows: []string{"night"}, Order: spec.Order{Slot: "rack.r2", Spread: 1440}},
		"stor-01": {Windows: []string{"weekend"}, Order: spec.Order{When: []spec.Condition{{Absent: "/run/busy"}, {Command: &spec.Command{Argv: []string{"/bin/true"}, Timeout: 60}}},
			Drain: &spec.Drain{Check: command("/bin/a"), Exec: command("/bin/b"), Undo: command("/bin/c")}, Soak: 600}},
	} {
		o, err := s.Overlay(node, "")
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(o.Swap, want) || !reflect.DeepEqual(s.SwapOf(node), want) {
			t.Errorf("%s: %+v; want %+v", node, o.Swap, want)
		}
		if w := o.Maintenance.Windows; len(w) != 1 || len(w[want.Windows[0]].Intervals) < 17 {
			t.Errorf("%s: windows %+v", node, w)
		}
		if want.Slot != "" && o.Maintenance.Slots[want.Slot].FleetLock != "https://lock.example" || want.Slot == "" && o.Maintenance.Slots != nil {
			t.Errorf("%s: slots %+v", node, o.Maintenance.Slots)
		}
		of, err := s.Windows(node)
		if err != nil || len(of) != 1 || of[0].Name != want.Windows[0] {
			t.Errorf("%s: its windows are %+v, %v", node, of, err)
		}
	}
	none := operatingAt(t, swapping[:strings.Index(swapping, "swap:")], "2026-11-21")
	if o, err := none.Overlay("web", ""); err != nil || o.Swap != nil {
		t.Errorf("without a policy: %+v, %v", o.Swap, err)
	}
	always := operatingAt(t, strings.Replace(swapping, "windows: [night]\n  slot: {by: rack, max: 1, fleetlock: \"https://lock.example\"}", "windows: [always]", 1), "2026-11-21")
	if o, err := always.Overlay("web", ""); err != nil || o.Maintenance != nil || !reflect.DeepEqual(o.Swap, &spec.LayerSwap{}) {
		t.Errorf("always: %+v, %+v, %v", o.Swap, o.Maintenance, err)
	}
}

// TestASwapsNeverOpenWindowIsSaid.
func TestASwapsNeverOpenWindowIsSaid(t *testing.T) {
	s := operatingAt(t, strings.Replace(swapping, "opens: [{weekly: sat, at", "except: [{from: 2026-01-01, to: 2028-01-01}], opens: [{weekly: sat, at", 1), "2026-11-21")
	if got := s.NeverOpen(); !slices.Equal(got, []string{"weekend"}) {
		t.Errorf("never open: %q", got)
	}
	if !s.maintenance.Operates() || (maintenance.Maintenance{}).Operates() {
		t.Error("a site with a swap has no calendar")
	}
}

// TestExplainASwap names the entry that counts, and where it was written.
func TestExplainASwap(t *testing.T) {
	e, err := operatingAt(t, swapping, "2026-11-21").Explain("stor-01", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(e.Swap["windows"], []any{"weekend"}) || e.Origins["/swap/soak"].Line != 13 {
		t.Errorf("%+v, %+v", e.Swap, e.Origins["/swap/soak"])
	}
}

// TestWhatASwapCannotSay is reported where it stands.
func TestWhatASwapCannotSay(t *testing.T) {
	for _, c := range []struct{ from, to, where, id string }{
		{"windows: [night]", "windows: [nigth]", "site.yaml:7:", "unknown-name"},
		{"windows: [night]", "windows: []", "site.yaml:7:", "window"},
		{"windows: [night]", "windows: [always, night]", "site.yaml:7:", "window"},
		{"windows: [night]\n", "soak: 1m\n", "site.yaml:7:", "required"},
		{"nodes: [storage]\n", "nodes: [storge]\n", "site.yaml:9:", "unknown-name"},
		{"check: {argv: [/bin/a], timeout: 1m}, ", "", "site.yaml:12:", "required"},
		{"soak: 10m", "soak: 8d", "site.yaml:13:", "range"},
		{"soak: 10m", "gates: []", "site.yaml:13:", "unknown-key"},
		{"by: rack", "by: row", "site.yaml:8:", "slot"},
		{"max: 1", "max: 0", "site.yaml:8:", ""},
		{"layer: {base: {debian: {suite: trixie}}}", "attached: true", "site.yaml:7:", "contradiction"},
	} {
		text := strings.Replace(swapping, c.from, c.to, 1)
		_, r := Parse(files("site.yaml", text), "site.yaml")
		if !slices.ContainsFunc(r.Problems, func(p report.Problem) bool {
			return strings.HasPrefix(p.String(), c.where) && (c.id == "" || p.Rule == c.id)
		}) {
			t.Errorf("%s: %v, want %s at %s", c.to, r.Problems, c.id, c.where)
		}
	}
	dead := strings.Replace(swapping, "- nodes: [storage]\n  windows", "- windows", 1)
	if _, r := Parse(files("site.yaml", dead), "site.yaml"); r.Err() != nil || !strings.Contains(r.Problems[1].String(), "site.yaml:7:3: swap[0]: the entry has no effect: that at site.yaml:9:3") {
		t.Errorf("an entry that another covers: %v", r.Problems)
	}
}
