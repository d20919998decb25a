// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"net/netip"
	"slices"
)

// Network is what the node's resolver, clock and interfaces need beyond DHCP.
type Network struct {
	DNS        []string    `json:"dns,omitempty"`        // resolver addresses
	Search     []string    `json:"search,omitempty"`     // search domains
	NTP        []string    `json:"ntp,omitempty"`        // time servers, names or addresses
	Interfaces []Interface `json:"interfaces,omitempty"` // in the author's order; a card that is not listed uses DHCP only if it is the one of the boot
}

// Static reports whether the network has addresses, and nobody is asked for any.
func (n *Network) Static() bool {
	return slices.ContainsFunc(n.Interfaces, func(i Interface) bool { return len(i.Addresses) > 0 }) &&
		!slices.ContainsFunc(n.Interfaces, func(i Interface) bool { return i.DHCP != "" })
}

// Cards are the addresses of the cards that interfaces name, and of others, sorted.
func (n *Network) Cards(others []string) []string {
	macs := slices.Clone(others)
	for _, i := range n.Interfaces {
		if i.MAC != "" {
			macs = append(macs, i.MAC)
		}
		if i.Bond != nil {
			macs = append(macs, i.Bond.Members...)
		}
	}
	slices.Sort(macs)
	return slices.Compact(macs)
}

// Interface is a network interface: a card that MAC or Name finds, or one that is made
// and gets Name, a bond or a VLAN. At most one of Bond and VLAN is set.
type Interface struct {
	MAC       string   `json:"mac,omitempty"`  // of a card, which it finds; lower case, colon separated
	Name      string   `json:"name,omitempty"` // of the kernel, which finds a card without MAC; with one, only what VLAN.On calls the card
	Bond      *Bond    `json:"bond,omitempty"`
	VLAN      *VLAN    `json:"vlan,omitempty"`
	MTU       int64    `json:"mtu,omitempty"`       // bytes, 576 to 65535; the driver's when 0
	DHCP      string   `json:"dhcp,omitempty"`      // ipv4, ipv6 or both; not asked when empty
	Addresses []string `json:"addresses,omitempty"` // CIDR
	Gateway   string   `json:"gateway,omitempty"`   // address of the default route
	Routes    []Route  `json:"routes,omitempty"`
}

// OnLink reports whether a router is on the link although no address of the interface has
// it in its network, as where a host has an address alone. What DHCP brings may have it, and
// those of a link alone always are there.
func (i *Interface) OnLink(router string) bool {
	a, err := netip.ParseAddr(router)
	if err != nil || a.Is6() && a.IsLinkLocalUnicast() || i.DHCP == DHCPBoth || i.DHCP == DHCPv4 && a.Is4() || i.DHCP == DHCPv6 && a.Is6() {
		return false
	}
	return !slices.ContainsFunc(i.Addresses, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(a)
	})
}

// Words of Interface.DHCP.
const (
	DHCPv4   = "ipv4"
	DHCPv6   = "ipv6"
	DHCPBoth = "both"
)

// Bond is an interface made of several cards, see bonding in the kernel's documentation.
type Bond struct {
	Members    []string `json:"members"`                      // MAC addresses of cards, sorted; they have no settings of their own
	Mode       string   `json:"mode"`                         // one of BondModes
	LACPRate   string   `json:"lacpRate,omitempty"`           // fast: each second; slow, each 30 s, when empty; of mode 802.3ad
	MinLinks   int64    `json:"minLinks,omitempty"`           // members that must be up for the bond to be; of mode 802.3ad
	HashPolicy string   `json:"transmitHashPolicy,omitempty"` // one of HashPolicies, how packets are spread over members; layer2 when empty; of HashModes
}

// Modes of a bond that are asked for by name, and the word of a fast LACP.
const (
	Bond8023AD = "802.3ad"
	LACPFast   = "fast"
)

// BondModes are those of the kernel.
var BondModes = []string{Bond8023AD, "active-backup", "balance-alb", "balance-rr", "balance-tlb", "balance-xor", "broadcast"}

// HashPolicies are those of the kernel, by their numbers there, see xmit_hash_policy in its
// documentation; HashModes are the modes of a bond that have one.
var (
	HashPolicies = []string{"layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4"}
	HashModes    = []string{Bond8023AD, "balance-tlb", "balance-xor"}
)

// VLAN is a tagged network (IEEE 802.1Q) on another interface.
type VLAN struct {
	ID int64  `json:"id"` // 1 to 4094
	On string `json:"on"` // Name of another Interface: a card or a bond
}

// Route is a way to a network.
type Route struct {
	To  string `json:"to"`            // CIDR without bits of a host
	Via string `json:"via,omitempty"` // address of a router of the same family; the network is on the link when empty
}

// BootMatch says which cards a row of [Bootstrap.Network] is of: all that is set must be so.
// A reader that does not know one of its keys matches none.
type BootMatch struct {
	MACs   []string `json:"macs,omitempty"`   // one of them; lower case, colon separated
	UUIDs  []string `json:"uuids,omitempty"`  // one of them is the machine's (SMBIOS); lower case
	Driver string   `json:"driver,omitempty"` // of the kernel, as ethtool -i prints it
	PCI    string   `json:"pci,omitempty"`    // as lspci -D prints it, for example 0000:3b:00.0
}

// BootNetwork is how a loader reaches the registry by the cards that Match finds, before
// it has an overlay. Of the rows that match a card the first one counts. Loaders of 0.9 do
// not act on it, and are not given any: see Features.
type BootNetwork struct {
	Match     BootMatch `json:"match"`
	Bond      *BootBond `json:"bond,omitempty"`      // of all cards that Match finds
	VLAN      int64     `json:"vlan,omitempty"`      // 1 to 4094; untagged when 0
	MTU       int64     `json:"mtu,omitempty"`       // bytes, 576 to 65535; the driver's when 0
	DHCP      string    `json:"dhcp,omitempty"`      // as Interface.DHCP
	Addresses []string  `json:"addresses,omitempty"` // CIDR
	Gateway   string    `json:"gateway,omitempty"`   // address of the default route
	DNS       []string  `json:"dns,omitempty"`       // resolver addresses
	Routes    []Route   `json:"routes,omitempty"`
}

// BootNode is how a loader reaches the registry on one node that has no DHCP: as the node's
// overlay has it. A row of [Bootstrap.Network] that matches one of its cards goes before.
type BootNode struct {
	Match   BootMatch `json:"match"`   // one of its addresses, or of its UUIDs: of the two, only one is given
	Network Network   `json:"network"` // DNS, Search and Interfaces
}

// BootBond is a [Bond] whose members a row's Match finds.
type BootBond struct {
	Mode       string `json:"mode"`                         // one of BondModes
	LACPRate   string `json:"lacpRate,omitempty"`           // as Bond.LACPRate
	MinLinks   int64  `json:"minLinks,omitempty"`           // as Bond.MinLinks
	HashPolicy string `json:"transmitHashPolicy,omitempty"` // as Bond.HashPolicy
}
