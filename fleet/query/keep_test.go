// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// TestKeep: the line that a drift offers is one that a site takes below conf:, and the node would
// get by it what it was found to have.
func TestKeep(t *testing.T) {
	for _, c := range []struct {
		drift spec.Drift
		line  string
	}{
		{spec.Drift{Item: "sysctl", Key: "vm.swappiness", From: "60"}, `sysctl: {vm.swappiness: "60"}`},
		{spec.Drift{Item: "sysctl", Key: "net.ipv4.tcp_rmem", From: "4096\t131072\t6291456"}, `sysctl: {net.ipv4.tcp_rmem: "4096 131072 6291456"}`},
		{spec.Drift{Item: "sysctl", Key: "net.ipv4.conf.eth0/100.forwarding", From: "1"}, `sysctl: {"net.ipv4.conf.eth0/100.forwarding": "1"}`},
		{spec.Drift{Item: "sysctl", Key: "kernel.core_pattern", From: `core: {"x"}, #`}, `sysctl: {kernel.core_pattern: "core: {\"x\"}, #"}`},
		{spec.Drift{Item: "sysfs", Key: "/sys/kernel/mm/transparent_hugepage/enabled", From: "madvise"}, `sysfs: {"/sys/kernel/mm/transparent_hugepage/enabled": "madvise"}`},
		{spec.Drift{Item: "ethtool", Key: "eth0/tx-checksum-ipv4", From: "off"}, `ethtool: {eth0: {tx-checksum-ipv4: "off"}}`},
		{spec.Drift{Item: "nics", Key: "eth0/ring/rx", From: "512"}, `nics: {eth0: {ring: {rx: "512"}}}`},
	} {
		line := Keep(c.drift)
		if line != c.line {
			t.Errorf("%v: %s, want %s", c.drift, line, c.line)
			continue
		}
		text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nnodes: [{name: a}]\nconf:\n  " + line + "\n"
		s, r := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
		if r.Err() != nil {
			t.Errorf("%s: %v", line, r.Err())
			continue
		}
		o, err := s.Overlay("a", "")
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%+v %+v %+v %+v", o.Items.Sysctl, o.Items.Sysfs, o.Items.Ethtool, o.Items.NICs)
		value := strings.ReplaceAll(c.drift.From, "\t", " ")
		if c.drift.Item == "ethtool" {
			value = "On:false"
		}
		if !strings.Contains(got, value) {
			t.Errorf("%s gives the node %s", line, got)
		}
	}
	for _, d := range []spec.Drift{{Item: "sysctl", Key: "a.b"}, {Item: "sysctl", Key: "a.b", From: strings.Repeat("x", 201)}, {Item: "ethtool", Key: "eth0/x", From: "?"}, {Item: "nics", Key: "eth0", From: "1"}, {Item: "files", Key: "/etc/x", From: "y"}} {
		if line := Keep(d); line != "" {
			t.Errorf("%+v: %s", d, line)
		}
	}
}
