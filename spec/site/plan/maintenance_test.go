// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/compare"
)

const operating = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
nodes: [{name: a}]
---
apiVersion: caisson.dev/v1alpha1
kind: MaintenanceWindow
metadata: {name: night}
spec: {timeZone: UTC, duration: 4h, startGuard: 30m, opens: [{weekly: sat, at: "22:00"}]}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeMaintenance
metadata: {name: m}
spec:
  windows: [night]
  operations:
  - {name: o, type: oneShot, generation: 1, disruptive: true, exec: {argv: [/bin/true], timeout: 5m}}
`

const nightly = `  - {name: c, type: cron, disruptive: true, schedule: {weekly: [fri, sat], at: "23:00"}, exec: {argv: [/bin/true], timeout: 5m}}
`

func planned(t *testing.T, before, after, now string) (NodePlan, string) {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04", now)
	if err != nil {
		t.Fatal(err)
	}
	read := func(text string) *site.Site {
		s, r := site.ParseAt(at, fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
		if r.Err() != nil {
			t.Fatal(r.Problems)
		}
		return s
	}
	var published *spec.Overlay
	if before != "" {
		if published, err = read(before).Overlay("a", ""); err != nil {
			t.Fatal(err)
		}
	}
	p := New(read(after), nil)
	p.Add("a", published)
	all := p.Plan()
	var text strings.Builder
	all.Write(&text)
	return all.Nodes[0], text.String()
}

// TestOperationsInAPlan says which operations start, stop and run again, and when the
// node is disturbed next.
func TestOperationsInAPlan(t *testing.T) {
	again := strings.Replace(operating, "generation: 1", "generation: 2", 1)
	for _, c := range []struct {
		name, before, after, now string
		next                     string // of the disruption
		said                     string
	}{
		{"new", strings.Replace(operating, "name: o,", "name: p,", 1), operating, "2026-11-16 12:00", "m/o from 2026-11-21T22:00Z in window night", "+ operation m/o"},
		{"gone", operating, strings.Replace(operating, "name: o,", "name: p,", 1), "2026-11-16 12:00", "m/p from 2026-11-21T22:00Z in window night", "- operation m/o"},
		{"in an open window", "", operating, "2026-11-21 23:00", "m/o from 2026-11-21T23:00Z in window night", ""},
		{"after its startGuard", "", operating, "2026-11-22 01:30", "m/o from 2026-11-28T22:00Z in window night", ""},
		{"it ran", operating, operating, "2026-11-16 12:00", "", ""},
		{"again", operating, again, "2026-11-16 12:00", "m/o from 2026-11-21T22:00Z in window night", "→ runs again: oneShot"},
		{"cron", operating + nightly, operating + nightly, "2026-11-16 12:00", "m/c from 2026-11-21T23:00Z in window night", ""},
		{"cron always", "", strings.Replace(operating, "windows: [night]", "windows: [always]", 1), "2026-11-16 12:00", "m/o from 2026-11-16T12:00Z", ""},
		{"nothing disturbs", "", strings.Replace(operating, "disruptive: true, ", "", 1), "2026-11-16 12:00", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, text := planned(t, c.before, c.after, c.now)
			if n.Next.text() != c.next {
				t.Errorf("next: %q, want %q", n.Next.text(), c.next)
			}
			if len(n.Changes) > 0 && c.next != "" && !strings.Contains(text, "disturbed next by "+c.next+"\n") || !strings.Contains(text, c.said) {
				t.Errorf("the plan says\n%s", text)
			}
		})
	}
}

const managing = operating + `  - {name: r, type: realtime, conf: {sysctl: {vm.swappiness: "1"}, nics: {eth0: {match: {name: eth0}, ring: {rx: 512}}}}}
`

// A preview of what operations of type realtime manage says when a running node sets it;
// a boot sets it at once.
func TestRealtimeInAPlan(t *testing.T) {
	other := strings.NewReplacer(`swappiness: "1"`, `swappiness: "2"`, "rx: 512", "rx: 1024").Replace(managing)
	const night = "; waits for m/r from 2026-11-21T22:00Z in window night\n"
	for _, c := range []struct {
		name, before, after, now string
		said                     []string
	}{
		{"in its window", managing, other, "2026-11-16 12:00", []string{"live: it is set by its operation, in a window\n", "sysctl vm.swappiness: 1 → 2" + night, "rx 1024" + night}},
		{"managed from now on", operating, managing, "2026-11-16 12:00", []string{"+ sysctl vm.swappiness: 1" + night}},
		{"while it is open", managing, other, "2026-11-21 23:00", []string{"live: kernel parameters are set at once\n", "sysctl vm.swappiness: 1 → 2\n"}},
		{"as it is about to close", managing, other, "2026-11-22 01:30", []string{"waits for m/r from 2026-11-28T22:00Z in window night\n"}},
		{"drift outside is enforced", strings.ReplaceAll(managing, "realtime,", "realtime, outsideWindow: enforce,"), strings.ReplaceAll(other, "realtime,", "realtime, outsideWindow: enforce,"), "2026-11-16 12:00", []string{"live: kernel parameters are set at once\n"}},
		{"a budget of its own", managing, strings.ReplaceAll(managing, "realtime,", "realtime, onConflict: {corrections: 3, per: 1h},"), "2026-11-16 12:00", []string{"→ realtime, given up after 3 corrections within 1h: "}},
		{"it leaves", managing, operating, "2026-11-16 12:00", []string{"- sysctl vm.swappiness: 1\n"}},
		{"beside what does not wait", managing, other + "---\nconf: {sysctl: {kernel.panic: 5}}\n", "2026-11-16 12:00", []string{"live: kernel parameters are set at once\n", "+ sysctl kernel.panic: 5\n", "1 → 2" + night}},
		{"with a boot", managing, strings.Replace(other, "nodes: [{name: a}]", "nodes: [{name: a}]\nmachine: {kernel: {args: [quiet]}}", 1), "2026-11-16 12:00", []string{"sysctl vm.swappiness: 1 → 2\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, text := planned(t, c.before, c.after, c.now)
			for _, said := range c.said {
				if !strings.Contains(text, said) {
					t.Errorf("the plan does not say %q:\n%s", said, text)
				}
			}
		})
	}
}

// TestTimesAreForPeople: no time of a plan is written as Go prints one.
func TestTimesAreForPeople(t *testing.T) {
	const hour, minutes = 3600, 300
	at := time.Unix(1_790_000_000, 0)
	run := spec.Command{Argv: []string{"/x"}, Timeout: minutes}
	budget := &spec.Budget{Corrections: 3, Per: hour}
	to := &spec.Overlay{
		Agent: &spec.Agent{Poll: minutes, Report: &spec.Reporting{URL: "https://fleet.example", Interval: hour},
			Enforce: []spec.Enforcement{{Item: "sysctl", Policy: spec.PolicyEnforce, Budget: budget}}},
		Gates: &spec.Gates{Checks: []spec.HealthCheck{{Name: "a", TCP: "a:1", Timeout: minutes, Interval: hour, Soak: minutes}}},
		Swap: &spec.LayerSwap{Order: spec.Order{When: []spec.Condition{{Command: &run}}, Spread: hour, Soak: minutes,
			Drain: &spec.Drain{Check: run, Exec: run, Undo: run}}},
		Maintenance: &spec.Maintenance{Windows: map[string]spec.Window{"night": {StartGuard: minutes, Intervals: []spec.Interval{{From: at, To: at.Add(time.Hour)}}}},
			Realtime: []spec.Realtime{{Name: "m/o", Keys: []spec.ItemKey{{Item: "sysctl", Key: "vm.swappiness"}}, Budget: budget}}},
	}
	var said strings.Builder
	for _, c := range compare.Overlays(&spec.Overlay{}, to) {
		said.WriteString(c.To + "\n")
	}
	(&Terms{Registry: "r", Lifetime: hour, Threshold: 1}).write(&said)
	for _, want := range []string{"every 5m\n", "every 1h\n", "within 1h\n", "within 5m, every 1h, retries 0, for 5m\n", "/x (5m)", "last 5m\n", "for 1h, in r"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no %q in\n%s", want, &said)
		}
	}
	if found := regexp.MustCompile(`\d[mh]0[ms]`).FindString(said.String()); found != "" {
		t.Errorf("%s is in\n%s", found, &said)
	}
}
