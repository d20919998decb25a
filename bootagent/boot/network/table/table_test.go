// SPDX-License-Identifier: Apache-2.0

package table

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/spec"
)

const (
	mac1, mac2, mac3 = "52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:03"
	uuid             = "4c4c4544-0000-2010-8020-80c04f202020"
)

var three = Machine{UUIDs: []string{uuid}, Cards: []Card{
	{Name: "eth0", MAC: mac1, Driver: "mlx5_core", PCI: "0000:3b:00.0"},
	{Name: "eth1", MAC: mac2, Driver: "mlx5_core", PCI: "0000:3b:00.1"},
	{Name: "eth2", MAC: mac3, Driver: "igb", PCI: "0000:01:00.0"},
}}

// TestMake: what a machine's table is, by what its sources say.
func TestMake(t *testing.T) {
	card := func(n int, dhcp string) spec.Interface {
		return spec.Interface{Name: three.Cards[n].Name, MAC: three.Cards[n].MAC, DHCP: dhcp}
	}
	lacp := spec.BootNetwork{Match: spec.BootMatch{Driver: "mlx5_core"}, Bond: &spec.BootBond{Mode: spec.Bond8023AD, MinLinks: 1, HashPolicy: "layer3+4"}, VLAN: 100, MTU: 9000, DHCP: spec.DHCPv4}
	bond := []spec.Interface{
		{Name: "bond0", Bond: &spec.Bond{Members: []string{mac1, mac2}, Mode: spec.Bond8023AD, MinLinks: 1, HashPolicy: "layer3+4"}, MTU: 9000},
		{Name: "bond0.100", VLAN: &spec.VLAN{ID: 100, On: "bond0"}, MTU: 9000, DHCP: spec.DHCPv4}}
	static := spec.BootNetwork{Match: spec.BootMatch{UUIDs: []string{uuid}}, Addresses: []string{"192.0.2.7/24"}, Gateway: "192.0.2.1", DNS: []string{"192.0.2.53"}}
	node := spec.BootNode{Match: spec.BootMatch{MACs: []string{mac3, "52:54:00:00:00:99"}}, Network: spec.Network{DNS: []string{"192.0.2.53"}, Interfaces: []spec.Interface{
		{MAC: mac3, Name: "uplink"}, {Name: "storage", VLAN: &spec.VLAN{ID: 7, On: "uplink"}, Addresses: []string{"192.0.2.7/24"}}, {Name: "ens9", Addresses: []string{"198.51.100.7/24"}}}}}
	const byRows, byNode, byLine = "bootNetwork of site.cpio", "this node's row in site.cpio", "the kernel's command line"
	for name, c := range map[string]struct {
		words string
		b     spec.Bootstrap
		want  Table
		notes string
	}{
		"nothing":                   {want: Table{Any: spec.DHCPv4, Source: "nothing: each card is asked by DHCP"}},
		"a resolver and no more":    {words: "nameserver=192.0.2.54", want: Table{Network: spec.Network{DNS: []string{"192.0.2.54"}}, Any: spec.DHCPv4, Source: "nothing: each card is asked by DHCP"}},
		"a bond by driver":          {b: spec.Bootstrap{Network: []spec.BootNetwork{lacp}}, want: Table{Network: spec.Network{Interfaces: bond}, Source: byRows}},
		"the line before all":       {words: "ip=eth2:dhcp", b: spec.Bootstrap{Network: []spec.BootNetwork{lacp}, Nodes: []spec.BootNode{node}}, want: Table{Network: spec.Network{Interfaces: []spec.Interface{card(2, spec.DHCPv4)}}, Source: byLine}},
		"each card, by the line":    {words: "ip=dhcp6", b: spec.Bootstrap{Network: []spec.BootNetwork{lacp}}, want: Table{Any: spec.DHCPv6, Source: byLine}},
		"a line that is not good":   {words: "ip=eth9:dhcp", b: spec.Bootstrap{Network: []spec.BootNetwork{lacp}}, want: Table{Network: spec.Network{Interfaces: bond}, Source: byRows}, notes: `there is no interface "eth9"`},
		"rows before a node's":      {b: spec.Bootstrap{Network: []spec.BootNetwork{lacp}, Nodes: []spec.BootNode{node}}, want: Table{Network: spec.Network{Interfaces: bond}, Source: byRows}},
		"rows of other cards":       {b: spec.Bootstrap{Network: []spec.BootNetwork{{Match: spec.BootMatch{Driver: "ixgbe"}, DHCP: spec.DHCPv4}, {DHCP: spec.DHCPv4}}}, want: Table{Any: spec.DHCPv4, Source: "nothing: each card is asked by DHCP"}},
		"all of a match":            {b: spec.Bootstrap{Network: []spec.BootNetwork{{Match: spec.BootMatch{Driver: "mlx5_core", PCI: "0000:3b:00.1"}, DHCP: spec.DHCPv6}}}, want: Table{Network: spec.Network{Interfaces: []spec.Interface{card(1, spec.DHCPv6)}}, Source: byRows}},
		"all of a match, by driver": {b: spec.Bootstrap{Network: []spec.BootNetwork{{Match: spec.BootMatch{MACs: []string{mac3}, Driver: "mlx5_core"}, DHCP: spec.DHCPv6}}}, want: Table{Any: spec.DHCPv4, Source: "nothing: each card is asked by DHCP"}},
		"the first row counts": {b: spec.Bootstrap{Network: []spec.BootNetwork{{Match: spec.BootMatch{MACs: []string{mac2}}, DHCP: spec.DHCPBoth}, {Match: spec.BootMatch{Driver: "mlx5_core"}, DHCP: spec.DHCPv4}}},
			want: Table{Network: spec.Network{Interfaces: []spec.Interface{card(1, spec.DHCPBoth), card(0, spec.DHCPv4)}}, Source: byRows}},
		"an address is one card's": {words: "nameserver=192.0.2.54", b: spec.Bootstrap{Network: []spec.BootNetwork{static}}, notes: "it matches 3 cards, and only eth0 gets its addresses",
			want: Table{Network: spec.Network{DNS: []string{"192.0.2.54", "192.0.2.53"}, Interfaces: []spec.Interface{{Name: "eth0", MAC: mac1, Addresses: static.Addresses, Gateway: static.Gateway}}}, Source: byRows}},
		"a node's own": {b: spec.Bootstrap{Nodes: []spec.BootNode{{Match: spec.BootMatch{MACs: []string{"52:54:00:00:00:99"}}}, node}}, notes: "card ens9 is not here",
			want: Table{Network: spec.Network{DNS: []string{"192.0.2.53"}, Interfaces: []spec.Interface{{Name: "eth2", MAC: mac3},
				{Name: "storage", VLAN: &spec.VLAN{ID: 7, On: "eth2"}, Addresses: []string{"192.0.2.7/24"}}}}, Source: byNode}},
		"a node whose cards are others": {b: spec.Bootstrap{Nodes: []spec.BootNode{{Match: spec.BootMatch{UUIDs: []string{uuid}}, Network: spec.Network{Interfaces: []spec.Interface{{MAC: "52:54:00:00:00:99", Addresses: static.Addresses}}}}}},
			notes: "card 52:54:00:00:00:99 is not here", want: Table{Any: spec.DHCPv4, Source: "nothing: each card is asked by DHCP"}},
	} {
		m := three
		m.Words = strings.Fields(c.words)
		got, notes := Make(m, &c.b)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if plain := got.Interfaces == nil && got.Any == spec.DHCPv4; got.Plain() != plain {
			t.Errorf("%s: plain is %t", name, got.Plain())
		}
		if said := strings.Join(notes, "\n"); !strings.Contains(said, c.notes) || (c.notes == "") != (said == "") {
			t.Errorf("%s: says %q, want %q", name, said, c.notes)
		}
	}
}

// TestVLANName: a name that the kernel would cut gets another.
func TestVLANName(t *testing.T) {
	for on, want := range map[string]string{"bond0": "bond0.4094", "enp129s0f0np0": "vlan4094"} {
		if got := vlanName(on, 4094); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// BenchmarkMake reads a site.cpio with the rows of 10,000 nodes without DHCP, beside the
// decoding of the same bytes into nothing in particular, and finds the last one's.
func BenchmarkMake(b *testing.B) {
	data, m := tenThousand(b)
	b.Run("read and found", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for range b.N {
			boot, _, err := spec.DecodeBootstrap(data)
			if err != nil {
				b.Fatal(err)
			}
			if t, _ := Make(m, &boot); len(t.Interfaces) != 2 {
				b.Fatalf("%+v", t)
			}
		}
	})
	b.Run("encoding/json, any", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for range b.N {
			var v any
			if err := json.Unmarshal(data, &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// tenThousand is such a site.cpio, and the machine of its last row: behind a bond with a
// tagged VLAN.
func tenThousand(t testing.TB) ([]byte, Machine) {
	t.Helper()
	const rows = 10000
	b := spec.Bootstrap{APIVersion: spec.APIVersion, Kind: spec.KindBootstrap, Fleet: "metal", Registry: "registry.example/metal"}
	mac := func(i, port int) string {
		return fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", i>>16, i>>8&255, i&255, port)
	}
	for i := range rows {
		members := []string{mac(i, 0), mac(i, 1)}
		b.Nodes = append(b.Nodes, spec.BootNode{Match: spec.BootMatch{MACs: members}, Network: spec.Network{DNS: []string{"192.0.2.53"}, Interfaces: []spec.Interface{
			{Name: "bond0", Bond: &spec.Bond{Members: members, Mode: spec.Bond8023AD, LACPRate: spec.LACPFast}, MTU: 9000},
			{Name: "storage", VLAN: &spec.VLAN{ID: 100, On: "bond0"}, Addresses: []string{fmt.Sprintf("10.0.%d.%d/16", i/250, i%250)}, Gateway: "10.0.255.254"}}}})
	}
	b.SetNeeds()
	data, err := spec.Encode(&b)
	if err != nil {
		t.Fatal(err)
	}
	return data, Machine{Cards: []Card{{Name: "eth0", MAC: mac(rows-1, 0)}, {Name: "eth1", MAC: mac(rows-1, 1)}}}
}

// TestTenThousandRows: what the rows of 10,000 nodes are for a loader to fetch, and what it
// takes to keep them while they are read.
func TestTenThousandRows(t *testing.T) {
	data, m := tenThousand(t)
	if perRow := len(data) / 10000; perRow > 400 {
		t.Errorf("a row has %d bytes", perRow)
	}
	boot, notes, err := spec.DecodeBootstrap(data)
	if err != nil || notes != nil {
		t.Fatal(notes, err)
	}
	if got, _ := Make(m, &boot); len(got.Interfaces) != 2 || got.Interfaces[1].Addresses[0] != "10.0.39.249/16" {
		t.Errorf("%+v", got)
	}
}
