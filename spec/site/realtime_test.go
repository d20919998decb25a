// SPDX-License-Identifier: Apache-2.0

package site

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// TestRealtimeReachesItsNodes: what an operation manages is among its nodes' items, by
// its keys, with the windows in which it is set.
func TestRealtimeReachesItsNodes(t *testing.T) {
	s := operatingAt(t, strings.Replace(operating, "nodes: [{", "conf: {sysctl: {vm.swappiness: \"1\"}}\nnodes: [{", 1)+`
  - {name: backlog, type: realtime, onConflict: {corrections: 3, per: 30m}, conf: {sysctl: {net/core/somaxconn: "4096"}, nics: {up: {match: {name: eth0}, ring: {rx: "512", tx: "256"}}}}}
  - {name: dirty, type: realtime, outsideWindow: enforce, conf: {sysctl: {vm.dirty_ratio: "10"}, sysfs: {/sys/kernel/mm/lru_gen/enabled: "1"}}}
`, "2026-11-21")
	o, err := s.Overlay("stor-01", "")
	if err != nil {
		t.Fatal(err)
	}
	if got := o.Items.Sysctl; len(got) != 3 || got[0].Key != "net/core/somaxconn" || got[2].Key != "vm/swappiness" {
		t.Errorf("sysctl: %+v", got)
	}
	want := []spec.Realtime{
		{Name: "disks/backlog", Windows: []string{"night"}, Keys: []spec.ItemKey{{Item: "nics", Key: "eth0/ring/rx"}, {Item: "nics", Key: "eth0/ring/tx"}, {Item: "sysctl", Key: "net/core/somaxconn"}}, Budget: &spec.Budget{Corrections: 3, Per: 1800}},
		{Name: "disks/dirty", Keys: []spec.ItemKey{{Item: "sysctl", Key: "vm/dirty_ratio"}, {Item: "sysfs", Key: "/sys/kernel/mm/lru_gen/enabled"}}},
	}
	if !reflect.DeepEqual(o.Maintenance.Realtime, want) || len(o.Items.NICs) != 1 || len(o.Items.Sysfs) != 1 || len(o.Maintenance.Operations) != 2 {
		t.Errorf("%+v", o.Maintenance.Realtime)
	}
	if web, err := s.Overlay("web", ""); err != nil || web.Maintenance != nil || len(web.Items.Sysctl) != 1 {
		t.Errorf("web: %+v, %v", web, err)
	}
}

// TestOneKeyIsManagedOnce on a node: where two manage it, that is an error at the second.
func TestOneKeyIsManagedOnce(t *testing.T) {
	const head = "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nnodes: [{name: a}, {name: b}]\n"
	const maintenance = "---\napiVersion: caisson.dev/v1alpha1\nkind: NodeSet\nmetadata: {name: only-a}\nspec: {match: {hosts: [a]}}\n" +
		"---\napiVersion: caisson.dev/v1alpha1\nkind: NodeMaintenance\nmetadata: {name: m}\nspec:\n  nodes: [only-a]\n  operations:\n"
	for _, row := range []struct{ conf, operations, want string }{
		{"", "  - {name: o, type: realtime, conf: {sysctl: {vm.swappiness: \"1\"}}}\n", ""},
		{"conf: {sysctl: {vm/swappiness: \"1\"}}\n", "  - {name: o, type: realtime, conf: {sysctl: {vm.swappiness: \"2\"}}}\n",
			"18:47: m.o: sysctl vm.swappiness is managed by conf, too, on a"},
		{"conf: {overrides: {divingbell_sysctl: {hosts: [{name: b, conf: {sysctl: {vm.swappiness: \"1\"}}}]}}}\n", "  - {name: o, type: realtime, conf: {sysctl: {vm.swappiness: \"2\"}}}\n", ""},
		{"conf: {overrides: {divingbell_sysctl: {hosts: [{name: a, conf: {sysctl: {vm.swappiness: \"1\"}}}]}}}\n", "  - {name: o, type: realtime, conf: {sysctl: {vm.swappiness: \"2\"}}}\n",
			"18:47: m.o: sysctl vm.swappiness is managed by conf, too, on a"},
		{"machine: {agent: {policy: {sysctl: {vm.swappiness: report}}}}\n", "  - {name: o, type: realtime, conf: {sysctl: {vm.swappiness: \"2\"}}}\n",
			"18:47: m.o: sysctl vm.swappiness is managed by machine.agent.policy, too, on a"},
		{"", "  - {name: o, type: realtime, conf: {sysctl: {vm.swappiness: \"2\"}}}\n  - {name: p, type: realtime, conf: {sysctl: {vm/swappiness: \"2\"}}}\n",
			"18:47: m.p: sysctl vm.swappiness is managed by m/o, too, on a"},
		{"conf: {sysctl: {vm/swappiness: \"1\"}}\n", "  - {name: o, template: {name: sysctl-baseline, version: \"1\"}}\n", // the template's file is not the author's
			"18:25: m.o: sysctl vm.swappiness is managed by conf, too, on a"},
		{"conf: {nics: {up: {match: {name: eth0}, ring: {rx: \"1\"}}}}\n", "  - {name: o, type: realtime, conf: {nics: {eth: {match: {name: eth0}, ring: {rx: \"2\"}}}}}\n",
			"18:45: m.o: nics eth0/ring/rx is managed by conf, too, on a"},
		{"conf: {nics: {up: {match: {name: eth0}, ring: {rx: \"1\"}}}}\n", "  - {name: o, type: realtime, conf: {nics: {up: {match: {name: eth1}, ring: {rx: \"2\"}}}}}\n", ""},
	} {
		text := head + row.conf + maintenance + row.operations
		_, report := ParseAt(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), files("site.yaml", text), "site.yaml")
		got := ""
		for _, p := range report.Problems {
			got += p.String() + "\n"
		}
		if row.want == "" && got != "" || !strings.Contains(got, row.want) || strings.Count(got, "managed by") > 1 {
			t.Errorf("%s%s: %q, want %q", row.conf, row.operations, got, row.want)
		}
	}
}
