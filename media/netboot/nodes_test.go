// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// TestNodesWithoutDHCP: the loader is told how nodes reach the registry that nobody gives an
// address to, as their overlays have it, and of no others.
func TestNodesWithoutDHCP(t *testing.T) {
	const text = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: metal}
registry: r.example/metal
network: {dns: [192.0.2.53], ntp: [192.0.2.1]}
bootNetwork: [{match: {driver: mlx5_core}, bond: {mode: 802.3ad}, vlan: 100, dhcp: ipv4}]
nodes:
  - {name: asks, match: {macs: ["52:54:00:00:00:0a"]}}
  - {name: mixed, match: {macs: ["52:54:00:00:00:0b"]}}
  - {name: static, match: {macs: ["52:54:00:00:00:0c"]}}
  - {name: bonded, match: {uuids: [4c4c4544-0000-2010-8020-80c04f202020]}}
  - {name: byname, match: {uuids: [4c4c4544-0000-2010-8020-80c04f202021]}}
  - {name: nothing}
machine:
  overrides:
    hosts:
      - {name: mixed, conf: {network: {interfaces: [{name: eth0, dhcp: ipv4}, {name: eth1, addresses: [192.0.2.9/24]}]}}}
      - {name: static, conf: {network: {interfaces: [{mac: "52:54:00:00:00:1c", addresses: [192.0.2.10/24], gateway: 192.0.2.1}]}}}
      - name: bonded
        conf:
          network:
            interfaces:
              - {name: bond0, bond: {members: ["52:54:00:00:00:01", "52:54:00:00:00:02"], mode: 802.3ad}, mtu: 9000}
              - {name: storage, vlan: {id: 100, on: bond0}, addresses: [192.0.2.11/24]}
      - {name: byname, conf: {network: {interfaces: [{name: eth0, addresses: [192.0.2.12/24]}]}}}
      - {name: nothing, conf: {network: {interfaces: [{name: eth0, addresses: [192.0.2.13/24]}]}}}
`
	s, report := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
	if report.Err() != nil {
		t.Fatal(report.Problems)
	}
	b, err := Anchor(s, Registry{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dns := []string{"192.0.2.53"}
	want := []spec.BootNode{
		{Match: spec.BootMatch{MACs: []string{"52:54:00:00:00:0c", "52:54:00:00:00:1c"}}, Network: spec.Network{DNS: dns,
			Interfaces: []spec.Interface{{MAC: "52:54:00:00:00:1c", Addresses: []string{"192.0.2.10/24"}, Gateway: "192.0.2.1"}}}},
		{Match: spec.BootMatch{MACs: []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}}, Network: spec.Network{DNS: dns, Interfaces: []spec.Interface{
			{Name: "bond0", Bond: &spec.Bond{Members: []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}, Mode: spec.Bond8023AD}, MTU: 9000},
			{Name: "storage", VLAN: &spec.VLAN{ID: 100, On: "bond0"}, Addresses: []string{"192.0.2.11/24"}}}}},
		{Match: spec.BootMatch{UUIDs: []string{"4c4c4544-0000-2010-8020-80c04f202021"}}, Network: spec.Network{DNS: dns,
			Interfaces: []spec.Interface{{Name: "eth0", Addresses: []string{"192.0.2.12/24"}}}}},
	}
	if diff := cmp.Diff(want, b.Nodes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(b.Network) != 1 || b.Network[0].VLAN != 100 {
		t.Errorf("bootNetwork is %+v", b.Network)
	}
}
