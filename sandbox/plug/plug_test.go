// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

func TestPlug(t *testing.T) {
	const a, b, c = "52:54:00:00:00:0a", "52:54:00:00:00:0b", "52:54:00:00:00:0c"
	match := spec.Match{MACs: []string{a}}
	for _, test := range []struct {
		name    string
		match   spec.Match
		cards   int
		network []spec.Interface
		macs    string
		want    string // network and registry, or the error
	}{
		{"by its card", match, 0, nil, a, ""},
		{"by its name", spec.Match{}, 0, nil, "52:54:00:ca:15:01", ""},
		{"more cards", match, 3, nil, a + " 52:54:00:ca:15:01 52:54:00:ca:15:02", ""},
		{"as many as the site names", spec.Match{MACs: []string{a, b}}, 1, nil, a + " " + b, ""},
		{"too many", match, 16, nil, "", "16 network cards"},
		{"by DHCP", match, 0, []spec.Interface{{MAC: b, DHCP: spec.DHCPv4}}, b + " " + a, ""},
		{"static", match, 0, []spec.Interface{{MAC: a, Addresses: []string{"2001:db8::11/64", "192.0.2.11/24"}, Gateway: "192.0.2.1"}}, a,
			"{192.0.2.0/24 192.0.2.1 192.0.2.254 192.0.2.11} 192.0.2.253:5000"},
		{"static without a router, at the end", match, 0, []spec.Interface{{MAC: a, Addresses: []string{"192.0.2.254/24"}}}, a,
			"{192.0.2.0/24 192.0.2.251 192.0.2.253 192.0.2.254} 192.0.2.252:5000"},
		{"a router elsewhere", match, 0, []spec.Interface{{MAC: a, Addresses: []string{"192.0.2.11/28"}, Gateway: "198.51.100.1"}}, a,
			"{192.0.2.0/28 192.0.2.12 192.0.2.14 192.0.2.11} 192.0.2.13:5000"},
		{"no room", match, 0, []spec.Interface{{MAC: a, Addresses: []string{"192.0.2.1/30"}}}, "", "the network 192.0.2.0/30 has too few addresses to try a node"},
		{"a bond", match, 0, []spec.Interface{{Name: "bond0", Bond: &spec.Bond{Members: []string{b, c}}, DHCP: spec.DHCPBoth}}, b + " " + c + " " + a, ""},
		{"a VLAN beside", match, 0, []spec.Interface{{Name: "v", VLAN: &spec.VLAN{ID: 7, On: "x"}, Addresses: []string{"192.0.2.11/24"}}}, a, ""},
		{"all on a VLAN", match, 0, []spec.Interface{{Name: "x", MAC: a}, {Name: "v", VLAN: &spec.VLAN{ID: 7, On: "x"}, DHCP: spec.DHCPv4}}, "",
			"node n has no IPv4 address before its system runs, so that it cannot be asked anything"},
		{"a name of the kernel", match, 0, []spec.Interface{{Name: "eno1", Addresses: []string{"192.0.2.11/24"}}}, a, ""},
	} {
		p, err := For(&spec.Overlay{Core: spec.Core{Node: "n", Match: test.match, Network: spec.Network{Interfaces: test.network}}}, nil, test.cards)
		if got := strings.Join(p.MACs, " "); err == nil && got != test.macs {
			t.Errorf("%s: cards %s, want %s", test.name, got, test.macs)
		}
		got := fmt.Sprintf("%v %v", p.Network, p.Registry)
		if err != nil {
			got = err.Error()
		}
		if err == nil && (p.Between != nil) != (len(p.MACs) > 1) || p.Between != nil && (p.Between.VLAN != 0 || p.Between.LACP) {
			t.Errorf("%s: behind %v", test.name, p.Between)
		}
		if want := test.want; want == "" && (err != nil || p.Network.Prefix.IsValid() || p.Registry.String() != "10.0.2.100:5000") || want != "" && got != want {
			t.Errorf("%s: %s, want %s", test.name, got, want)
		}
	}
}

// TestPlugBehindASwitch: tags, a partner by LACP, and the row of bootNetwork that is the
// node's: what metal has, but for drivers and places of cards.
func TestPlugBehindASwitch(t *testing.T) {
	const a, b = "52:54:00:00:00:0a", "52:54:00:00:00:0b"
	bond := spec.Interface{Name: "bond0", Bond: &spec.Bond{Members: []string{a, b}, Mode: spec.Bond8023AD}}
	vlan := func(on string, addresses ...string) spec.Interface {
		return spec.Interface{Name: "v", VLAN: &spec.VLAN{ID: 7, On: on}, Addresses: addresses, Gateway: "192.0.2.1"}
	}
	const static = "{192.0.2.0/24 192.0.2.1 192.0.2.254 192.0.2.11} 192.0.2.253:5000"
	byMAC := spec.BootNetwork{Match: spec.BootMatch{MACs: []string{a}}, VLAN: 7, DHCP: spec.DHCPv4}
	byUUID := spec.BootNetwork{Match: spec.BootMatch{UUIDs: []string{"u"}}, VLAN: 7, Bond: &spec.BootBond{Mode: spec.Bond8023AD}, Addresses: []string{"192.0.2.11/24"}, Gateway: "192.0.2.1"}
	byDriver := spec.BootNetwork{Match: spec.BootMatch{MACs: []string{a}, Driver: "mlx5_core"}, VLAN: 9}
	for _, test := range []struct {
		name    string
		network []spec.Interface
		rows    []spec.BootNetwork
		macs    string
		vlan    uint16
		lacp    bool
		row     bool
		want    string // network and registry
	}{
		{"a VLAN on a card", []spec.Interface{{Name: "x", MAC: b}, vlan("x", "192.0.2.11/24")}, nil, b + " " + a, 7, false, false, static},
		{"a VLAN on a bond", []spec.Interface{bond, vlan("bond0", "192.0.2.11/24")}, nil, a + " " + b, 7, true, false, static},
		{"a bond alone", []spec.Interface{{Name: "bond0", Bond: bond.Bond, Addresses: []string{"192.0.2.11/24"}, Gateway: "192.0.2.1"}}, nil, a + " " + b, 0, true, false, static},
		{"a row by MAC", nil, []spec.BootNetwork{byDriver, byMAC}, a, 7, false, true, "{invalid Prefix invalid IP invalid IP invalid IP} 10.0.2.100:5000"},
		{"a row by MAC, and the system's own address", []spec.Interface{{Name: "x", MAC: a}, vlan("x", "192.0.2.11/24")}, []spec.BootNetwork{byMAC}, a, 7, false, true, static},
		{"a row by UUID", nil, []spec.BootNetwork{byUUID}, a, 7, true, true, static},
		{"a row of others", nil, []spec.BootNetwork{{Match: spec.BootMatch{MACs: []string{b}}, VLAN: 7}, byDriver}, a, 0, false, false, "{invalid Prefix invalid IP invalid IP invalid IP} 10.0.2.100:5000"},
	} {
		p, err := For(&spec.Overlay{Core: spec.Core{Node: "n", Match: spec.Match{MACs: []string{a}, UUIDs: []string{"u"}}, Network: spec.Network{Interfaces: test.network}}}, test.rows, 0)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if got := strings.Join(p.MACs, " "); got != test.macs {
			t.Errorf("%s: cards %s, want %s", test.name, got, test.macs)
		}
		if got := fmt.Sprintf("%v %v", p.Network, p.Registry); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		if p.Between == nil && (test.vlan != 0 || test.lacp) || p.Between != nil && (p.Between.VLAN != test.vlan || p.Between.LACP != test.lacp) {
			t.Errorf("%s: behind %+v", test.name, p.Between)
		}
		if (len(p.Rows) == 1) != test.row {
			t.Errorf("%s: rows %v", test.name, p.Rows)
		}
	}
}

// TestTheBootCardAsksFirst: the first address that the network gives is the boot card's, in
// whatever order cards ask.
func TestTheBootCardAsksFirst(t *testing.T) {
	pass := firstIs("52:54:00:00:00:0a")
	ask := func(last byte) []byte {
		frame := make([]byte, 60)
		copy(frame[6:], []byte{0x52, 0x54, 0, 0, 0, last, 0x08, 0, 0x45})
		frame[23], frame[37] = 17, 67
		return frame
	}
	other := ask(0x0b)
	other[37] = 53
	for _, row := range []struct {
		name   string
		from   int
		frame  []byte
		passes bool
	}{
		{"another card asks", 2, ask(0x0b), false},
		{"it says something else", 2, other, true},
		{"the boot card asks", 1, ask(0x0a), true},
		{"and another", 2, ask(0x0b), true},
		{"the network answers", 0, ask(0x0c), true},
	} {
		if got := pass(row.from, row.frame) != nil; got != row.passes {
			t.Errorf("%s: it passes: %v", row.name, got)
		}
	}
	if pass := firstIs("52:54:00:00:00:0a"); pass(2, ask(0x0a)) == nil || pass(1, ask(0x0b)) == nil {
		t.Error("a bond asks by its second card")
	}
}
