// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

const operating = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
nodes: [{name: stor-01, labels: {role: storage}}, {name: stor-07, labels: {role: storage}}, {name: web}]
---
apiVersion: caisson.dev/v1alpha1
kind: NodeSet
metadata: {name: storage}
spec: {match: {labels: {role: storage}, hosts: ["stor-*"]}, exclude: {hosts: [stor-07]}}
---
apiVersion: caisson.dev/v1alpha1
kind: MaintenanceWindow
metadata: {name: night}
spec: {timeZone: Europe/Berlin, duration: 4h, startGuard: 30m, onClose: stop, opens: [{weekly: sat, at: "22:00"}]}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeMaintenance
metadata: {name: disks}
spec:
  nodes: [storage]
  windows: [night]
  operations:
  - {name: trim, type: cron, schedule: {weekly: sun, at: "00:30", jitter: 30m}, exec: {argv: [/usr/sbin/fstrim, -A], timeout: 1h}}
  - {name: rescan, type: oneShot, generation: 1, exec: {argv: [/bin/true], timeout: 5m}, retry: {max: 3, backoff: 10m}}
`

func operatingAt(t *testing.T, text, now string) *Site {
	t.Helper()
	at, err := time.Parse(time.DateOnly, now)
	if err != nil {
		t.Fatal(err)
	}
	s, report := ParseAt(at, files("site.yaml", text), "site.yaml")
	if report.Err() != nil {
		t.Fatal(report.Problems)
	}
	return s
}

func maintenanceOf(t *testing.T, s *Site, node string) *spec.Maintenance {
	t.Helper()
	o, err := s.Overlay(node, "")
	if err != nil {
		t.Fatal(err)
	}
	return o.Maintenance
}

// TestMaintenanceReachesItsNodes compiles operations and windows for the nodes of a
// set, and for no others.
func TestMaintenanceReachesItsNodes(t *testing.T) {
	s := operatingAt(t, operating, "2026-11-21")
	for _, node := range []string{"stor-07", "web"} {
		if m := maintenanceOf(t, s, node); m != nil {
			t.Errorf("%s gets %+v", node, m)
		}
	}
	m := maintenanceOf(t, s, "stor-01")
	if m.Horizon != time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC) || len(m.Operations) != 2 {
		t.Fatalf("%+v", m)
	}
	night := m.Windows["night"]
	if night.StartGuard != 1800 || night.OnClose != "stop" || len(night.Intervals) != 18 || night.Intervals[0].From.Format(time.RFC3339) != "2026-10-31T21:00:00Z" {
		t.Errorf("window %+v", night)
	}
	rescan, trim := m.Operations[0], m.Operations[1]
	if rescan.Name != "disks/rescan" || rescan.Retries != 3 || rescan.Backoff != 600 || rescan.Generation != 1 || rescan.Runs != nil {
		t.Errorf("%+v", rescan)
	}
	if trim.Jitter != 1800 || len(trim.Runs) != 17 || trim.Runs[0].Format(time.RFC3339) != "2026-11-07T23:30:00Z" {
		t.Errorf("%+v", trim.Runs)
	}
}

// TestMaintenanceRestsForAMonth holds a site to the same bytes all month, and an
// operation to its identity when the calendar moves on: nothing is repeated.
func TestMaintenanceRestsForAMonth(t *testing.T) {
	compile := func(text, now string) []byte {
		t.Helper()
		data, err := operatingAt(t, text, now).Compile("stor-01", "", "")
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	ids := func(text, now string) (out []string) {
		for _, o := range maintenanceOf(t, operatingAt(t, text, now), "stor-01").Operations {
			out = append(out, o.ID)
		}
		return out
	}
	first := compile(operating, "2026-11-01")
	for _, day := range []string{"2026-11-02", "2026-11-21", "2026-11-30"} {
		if !bytes.Equal(first, compile(operating, day)) {
			t.Errorf("other bytes on %s", day)
		}
	}
	if bytes.Equal(first, compile(operating, "2026-12-01")) {
		t.Error("the calendar of the next month is that of this month")
	}
	same := ids(operating, "2026-11-21")
	for what, text := range map[string]string{
		"another window": strings.ReplaceAll(operating, "duration: 4h", "duration: 5h"), "another time": strings.Replace(operating, "00:30", "01:30", 1),
		"another jitter": strings.Replace(operating, "jitter: 30m", "jitter: 5m", 1), "other nodes": strings.Replace(operating, "exclude: {hosts: [stor-07]}", "", 1), "retries": strings.Replace(operating, "max: 3", "max: 5", 1),
	} {
		if got := ids(text, "2027-06-21"); !slices.Equal(got, same) {
			t.Errorf("%s makes other operations", what)
		}
	}
	for what, text := range map[string]string{"generation": strings.Replace(operating, "generation: 1", "generation: 2", 1), "action": strings.Replace(operating, "/bin/true", "/bin/false", 1)} {
		if got := ids(text, "2026-11-21"); got[0] == same[0] || got[1] != same[1] {
			t.Errorf("%s: %q", what, got)
		}
	}
}

// TestMaintenanceNeedsADate refuses to compile a calendar without knowing the month.
func TestMaintenanceNeedsADate(t *testing.T) {
	s := mustParse(t, operating)
	if _, err := s.Overlay("stor-01", ""); err == nil {
		t.Error("compiled without a date")
	}
	if _, err := s.Compile("stor-01", "", ""); err == nil {
		t.Error("compiled without a date")
	}
}

func TestNeverOpen(t *testing.T) {
	if got := operatingAt(t, operating, "2026-11-21").NeverOpen(); got != nil {
		t.Errorf("%q", got)
	}
	over := strings.Replace(operating, "weekly: sat", "date: 2020-02-29", 1)
	if got := operatingAt(t, over, "2026-11-21").NeverOpen(); !slices.Equal(got, []string{"night"}) {
		t.Errorf("%q", got)
	}
}

// TestTurnsReachTheirNodes compiles slots by label, the spread of a window, and gives
// a turn only to what disturbs. None of it is part of an operation's id.
func TestTurnsReachTheirNodes(t *testing.T) {
	text := strings.Replace(operating, "labels: {role: storage}}, {name: stor-07", "labels: {role: storage, rack: r1}}, {name: stor-07", 1)
	before := maintenanceOf(t, operatingAt(t, strings.Replace(text, "{name: rescan,", "{name: rescan, disruptive: true,", 1), "2026-11-21"), "stor-01")
	turn := "  when: [{unit: etcd.service}]\n  slot: {by: rack, max: 2, fleetlock: \"https://lock.example\"}\n  soak: 10m\n  operations:\n"
	text = strings.Replace(strings.Replace(text, "  operations:\n", turn, 1), "{name: rescan,", "{name: rescan, disruptive: true,", 1)
	s := operatingAt(t, text, "2026-11-21")
	m := maintenanceOf(t, s, "stor-01")
	want := spec.Order{When: []spec.Condition{{Unit: "etcd.service"}}, Slot: "rack.r1", Spread: 3.5 * 360, Soak: 600}
	if got := m.Operations[0].Order; got == nil || !reflect.DeepEqual(*got, want) || m.Operations[1].Order != nil {
		t.Errorf("%+v, %+v", got, m.Operations[1].Order)
	}
	if got := m.Slots["rack.r1"]; got != (spec.Slot{Max: 2, FleetLock: "https://lock.example"}) || len(m.Slots) != 1 {
		t.Errorf("%+v", m.Slots)
	}
	if m.Operations[0].ID != before.Operations[0].ID {
		t.Error("a turn changes what an operation is")
	}
}

// TestNoPause: 0s says that there is none, also where something else holds when nothing
// is said. What cannot be nothing still cannot.
func TestNoPause(t *testing.T) {
	with := func(turn string) string {
		return strings.Replace(strings.Replace(operating, "  operations:\n", turn+"  operations:\n", 1), "{name: rescan,", "{name: rescan, disruptive: true,", 1)
	}
	m := maintenanceOf(t, operatingAt(t, with("  slot: {group: g, max: 1, directory: /d, spread: 0s}\n  soak: 0s\n"), "2026-11-21"), "stor-01")
	if got := m.Operations[0].Order; got == nil || got.Spread != 0 || got.Soak != 0 {
		t.Errorf("%+v", got)
	}
	text := strings.Replace(with(""), "timeout: ", "timeout: 0s, wrong: ", 1)
	_, report := ParseAt(time.Now(), files("site.yaml", text), "site.yaml")
	if err := report.Err(); err == nil || !strings.Contains(report.Problems[0].Message, `"0s" is not a length of time`) {
		t.Errorf("%v", report.Problems)
	}
}

// TestNodesThatCannotTakeTheirTurn are errors of the site.
func TestNodesThatCannotTakeTheirTurn(t *testing.T) {
	for turn, want := range map[string]string{
		"{by: rack, max: 1, directory: /d}": `the node stor-01 has no label "rack"`,
		"{by: role, max: 1, directory: /d}": "",
	} {
		text := strings.Replace(strings.Replace(operating, "  operations:\n", "  slot: "+turn+"\n  operations:\n", 1), "{name: rescan,", "{name: rescan, disruptive: true,", 1)
		_, report := ParseAt(time.Now(), files("site.yaml", text), "site.yaml")
		if err := report.Err(); (err != nil) != (want != "") || want != "" && !strings.Contains(report.Problems[0].Message, want) {
			t.Errorf("%s: %v", turn, report.Problems)
		}
	}
}

// What is wrong with an operation of a template that comes with caisson is said where the
// site uses it: nobody has the template's file.
func TestErrorsOfShippedTemplates(t *testing.T) {
	const use = "---\napiVersion: caisson.dev/v1alpha1\nkind: NodeMaintenance\nmetadata: {name: m}\nspec:\n  windows: [always]\n  operations:\n" +
		"    - name: t\n      template: {name: rotate-cert, version: \"1\"}\n      with: {certificate: /etc/x.pem, renew: certbot}\n      schedule: {weekly: [sun], at: \"03:00\", timeZone: UTC}\n"
	for text, want := range map[string]string{
		use: "site.yaml:13:46: m.operations[0].exec.argv: a command begins with the absolute path",
		strings.Replace(strings.Replace(use, "rotate-cert", "restart-service", 1), "with: {certificate: /etc/x.pem, renew: certbot}", "with: {unit: x.service}", 1): "",
		strings.Replace(strings.Replace(use, "  windows: [always]\n", "", 1), "rotate-cert", "reboot-if-required", 1):                                               "site.yaml:",
	} {
		_, r := Parse(files("site.yaml", head+text), "site.yaml")
		if want != "" && (r.Err() == nil || !strings.HasPrefix(r.Err().Error(), want)) {
			t.Errorf("%v, want %s", r.Err(), want)
		}
		for _, p := range r.Problems {
			if p.File != "site.yaml" {
				t.Errorf("%s is in a file that nobody has", p)
			}
		}
	}
}
