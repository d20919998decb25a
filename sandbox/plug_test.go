// SPDX-License-Identifier: Apache-2.0

package sandbox

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
		{"no room", match, 0, []spec.Interface{{MAC: a, Addresses: []string{"192.0.2.1/30"}}}, "", "the network 192.0.2.0/30 has no room for what a node is tried with"},
		{"a bond", match, 0, []spec.Interface{{Name: "bond0", Bond: &spec.Bond{Members: []string{b, c}}, DHCP: spec.DHCPBoth}}, b + " " + c + " " + a, ""},
		{"a VLAN beside", match, 0, []spec.Interface{{Name: "v", VLAN: &spec.VLAN{ID: 7, On: "x"}, Addresses: []string{"192.0.2.11/24"}}}, a, ""},
		{"all on a VLAN", match, 0, []spec.Interface{{Name: "x", MAC: a}, {Name: "v", VLAN: &spec.VLAN{ID: 7, On: "x"}, DHCP: spec.DHCPv4}}, "",
			"node n has no IPv4 address without a VLAN, so that it cannot be asked anything"},
		{"a name of the kernel", match, 0, []spec.Interface{{Name: "eno1", Addresses: []string{"192.0.2.11/24"}}}, a, ""},
	} {
		p, err := plugFor(&spec.Overlay{Core: spec.Core{Node: "n", Match: test.match, Network: spec.Network{Interfaces: test.network}}}, test.cards)
		if got := strings.Join(p.macs, " "); err == nil && got != test.macs {
			t.Errorf("%s: cards %s, want %s", test.name, got, test.macs)
		}
		got := fmt.Sprintf("%v %v", p.network, p.registry)
		if err != nil {
			got = err.Error()
		}
		if want := test.want; want == "" && (err != nil || p.network.Prefix.IsValid() || p.registry.String() != "10.0.2.100:5000") || want != "" && got != want {
			t.Errorf("%s: %s, want %s", test.name, got, want)
		}
	}
}
