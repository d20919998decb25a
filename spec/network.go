// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"net/netip"
	"slices"
)

// Network holds the settings of the node's resolver, clock and interfaces beyond DHCP.
type Network struct {
	DNS    []string `json:"dns,omitempty" doc:"resolver addresses"`
	Search []string `json:"search,omitempty" doc:"search domains"`
	// time servers, names or addresses
	NTP []string `json:"ntp,omitempty" doc:"time servers"`
	// in the author's order; a card that is not listed uses DHCP only if it is the one of the boot
	Interfaces []Interface `json:"interfaces,omitempty" doc:"cards, bonds and VLANs, see docs/site.md; others have DHCP if booted from"`
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
	// of a card, which it finds; lower case, colon separated
	MAC string `json:"mac,omitempty" doc:"MAC address of a card; without it, name finds the card"`
	// of the kernel, which finds a card without MAC; with one, only what VLAN.On calls the card
	Name string `json:"name,omitempty" doc:"the kernel's name of a card (with mac: what vlan.on calls it), or that of the bond or VLAN to make"`
	Bond *Bond  `json:"bond,omitempty" doc:"make the interface of several cards"`
	VLAN *VLAN  `json:"vlan,omitempty" doc:"make the interface a tagged network on another one"`
	// bytes, 576 to 65535; the driver's when 0
	MTU int64 `json:"mtu,omitempty" doc:"MTU in bytes"`
	// ipv4, ipv6 or both; not asked when empty
	DHCP string `json:"dhcp,omitempty" enum:"no,ipv4,ipv6,both" doc:"ask for an address by DHCP; no when absent"`
	// since 0.10.0, as a boot waits for the card: network-online.target does not wait for it
	Optional  bool     `json:"optional,omitempty" doc:"a boot does not wait until it is online, as where a cable may be missing"`
	Addresses []string `json:"addresses,omitempty" doc:"addresses with prefix length, as in 192.0.2.7/24"`
	Gateway   string   `json:"gateway,omitempty" doc:"address of the default route"`
	Routes    []Route  `json:"routes,omitempty" site:","`
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
	// MAC addresses of cards, sorted; they have no settings of their own
	Members []string `json:"members" site:",required" doc:"MAC addresses of cards, which need no entry of their own"`
	// one of BondModes
	Mode string `json:"mode" site:",required" enum:"802.3ad,active-backup,balance-alb,balance-rr,balance-tlb,balance-xor,broadcast"`
	// fast: each second; slow, each 30 s, when empty; of mode 802.3ad
	LACPRate string `json:"lacpRate,omitempty" enum:"slow,fast" doc:"LACP rate of mode 802.3ad; slow when absent"`
	MinLinks int64  `json:"minLinks,omitempty" doc:"members of mode 802.3ad that must be up"`
	// since 0.10.0, as the bond is made, with layer2: chooses the card of a packet, in modes 802.3ad,
	// balance-tlb and balance-xor; layer2 when absent
	HashPolicy string `json:"transmitHashPolicy,omitempty" enum:"layer2,layer2+3,layer3+4,encap2+3,encap3+4" doc:"spreads packets; else layer2"`
	// since 0.10.0, as the kernel chooses one: one of Members, in one of PrimaryModes
	Primary string `json:"primary,omitempty" doc:"MAC address of the member that is used while it is up; not in every mode"`
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

// PrimaryModes are those of a bond that uses one of its members as long as it is up.
var PrimaryModes = []string{"active-backup", "balance-tlb", "balance-alb"}

// VLAN is a tagged network (IEEE 802.1Q) on another interface.
type VLAN struct {
	ID int64  `json:"id" site:",required" doc:"number of the VLAN, 1 to 4094"`
	On string `json:"on" site:",required" doc:"name of another entry: a card or a bond"`
}

// Route is a way to a network.
type Route struct {
	// CIDR without bits of a host
	To string `json:"to" site:",required" doc:"a network, as in 198.51.100.0/24"`
	// address of a router of the same family; the network is on the link when empty
	Via string `json:"via,omitempty" doc:"address of a router; the network is on the link when absent"`
	// since 0.10.0, as the route is made: 1 to 4294967295; the kernel's choice when 0
	Metric int64 `json:"metric,omitempty" doc:"of several routes to one network that with the lowest counts"`
}

// BootMatch says which cards a row of [Bootstrap.Network] is of: all that is set must be so.
// A reader that does not know one of its keys matches none.
type BootMatch struct {
	// one of them; lower case, colon separated
	MACs []string `json:"macs,omitempty" site:",words" doc:"MAC addresses; the card has one of them"`
	// one of them is the machine's (SMBIOS); lower case
	UUIDs  []string `json:"uuids,omitempty" site:",words" doc:"SMBIOS UUIDs; the machine has one of them"`
	Driver string   `json:"driver,omitempty" doc:"driver of the card, as ethtool -i prints it"`
	PCI    string   `json:"pci,omitempty" doc:"place on the PCI bus, as lspci -D prints it, for example 0000:3b:00.0"`
}

// BootNetwork is how a loader reaches the registry by the cards that Match finds, before
// it has an overlay. Of the rows that match a card the first one counts. Loaders of 0.9 do
// not act on it, and are not given any: see Features.
type BootNetwork struct {
	Match BootMatch `json:"match" site:",required" doc:"which cards; a card must match all that is given"`
	Bond  *BootBond `json:"bond,omitempty" doc:"make one interface of all cards that match"`
	VLAN  int64     `json:"vlan,omitempty" doc:"number of the VLAN, 1 to 4094; untagged when absent"`
	// bytes, 576 to 65535; the driver's when 0
	MTU int64 `json:"mtu,omitempty" doc:"MTU in bytes"`
	// as Interface.DHCP
	DHCP string `json:"dhcp,omitempty" enum:"no,ipv4,ipv6,both" doc:"ask for an address by DHCP; no when absent"`
	// since 0.10.0, as a boot waits for the card: network-online.target does not wait for it
	Optional  bool     `json:"optional,omitempty" doc:"a boot does not wait until it is online, as where a cable may be missing"`
	Addresses []string `json:"addresses,omitempty" doc:"addresses with prefix length, as in 192.0.2.7/24"`
	Gateway   string   `json:"gateway,omitempty" doc:"address of the default route"`
	DNS       []string `json:"dns,omitempty" doc:"resolver addresses"`
	Routes    []Route  `json:"routes,omitempty" site:","`
}

// BootNode is how a loader reaches the registry on one node that has no DHCP: as the node's
// overlay has it. A row of [Bootstrap.Network] that matches one of its cards goes before.
type BootNode struct {
	Match   BootMatch `json:"match"`   // one of its addresses, or of its UUIDs: of the two, only one is given
	Network Network   `json:"network"` // DNS, Search and Interfaces
}

// BootNodeOf returns the row of a node whose network has addresses, false where it asks for one by
// DHCP, or a loader cannot tell it.
func BootNodeOf(m Match, n Network) (row BootNode, ok bool) {
	if !n.Static() {
		return row, false
	}
	row.Network = Network{DNS: n.DNS, Search: n.Search, Interfaces: n.Interfaces}
	if row.Match.MACs = n.Cards(m.MACs); row.Match.MACs == nil {
		row.Match.UUIDs = m.UUIDs
	}
	return row, row.Match.MACs != nil || row.Match.UUIDs != nil
}

// BootBond is a [Bond] whose members a row's Match finds.
type BootBond struct {
	// one of BondModes
	Mode     string `json:"mode" site:",required" enum:"802.3ad,active-backup,balance-alb,balance-rr,balance-tlb,balance-xor,broadcast"`
	LACPRate string `json:"lacpRate,omitempty" enum:"slow,fast" doc:"LACP rate of mode 802.3ad; slow when absent"`
	MinLinks int64  `json:"minLinks,omitempty" doc:"members of mode 802.3ad that must be up"`
	// since 0.10.0, as the bond is made, with layer2: chooses the card of a packet, in modes 802.3ad,
	// balance-tlb and balance-xor; layer2 when absent
	HashPolicy string `json:"transmitHashPolicy,omitempty" enum:"layer2,layer2+3,layer3+4,encap2+3,encap3+4" doc:"spreads packets; else layer2"`
}
