// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// BootNetworkDoc is one row of a site's bootNetwork as it is written.
type BootNetworkDoc struct {
	Match     bootMatchDoc `site:"match,required" doc:"which cards; a card must match all that is given"`
	Bond      *bootBondDoc `site:"bond" doc:"make one interface of all cards that match"`
	VLAN      shape.Number `site:"vlan" doc:"number of the VLAN, 1 to 4094; untagged when absent"`
	MTU       shape.Number `site:"mtu" doc:"MTU in bytes"`
	DHCP      shape.Text   `site:"dhcp" enum:"no,ipv4,ipv6,both" doc:"ask for an address by DHCP; no when absent"`
	Addresses []shape.Text `site:"addresses" doc:"addresses with prefix length, as in 192.0.2.7/24"`
	Gateway   shape.Text   `site:"gateway" doc:"address of the default route"`
	DNS       []shape.Text `site:"dns" doc:"resolver addresses"`
	Routes    []routeDoc   `site:"routes"`
	At        report.Pos
}

type bootMatchDoc struct {
	MACs   shape.Words `site:"macs" doc:"MAC addresses; the card has one of them"`
	UUIDs  shape.Words `site:"uuids" doc:"SMBIOS UUIDs; the machine has one of them"`
	Driver shape.Text  `site:"driver" doc:"driver of the card, as ethtool -i prints it"`
	PCI    shape.Text  `site:"pci" doc:"place on the PCI bus, as lspci -D prints it, for example 0000:3b:00.0"`
	At     report.Pos
}

type bootBondDoc struct {
	Mode       shape.Text   `site:"mode,required" enum:"802.3ad,active-backup,balance-alb,balance-rr,balance-tlb,balance-xor,broadcast"`
	LACPRate   shape.Text   `site:"lacpRate" enum:"slow,fast" doc:"LACP rate of mode 802.3ad; slow when absent"`
	MinLinks   shape.Number `site:"minLinks" doc:"members of mode 802.3ad that must be up"`
	HashPolicy shape.Text   `site:"transmitHashPolicy" enum:"layer2,layer2+3,layer3+4,encap2+3,encap3+4" doc:"by what packets are spread over members, in modes 802.3ad, balance-tlb and balance-xor; layer2 when absent"`
}

// maxBond is how many members the bound of minLinks is taken from, where a match finds
// them.
const maxBond = 32

// BootNetwork checks what the loaders are told of the network.
func BootNetwork(c *shape.Checker, docs []BootNetworkDoc) (rows []spec.BootNetwork) {
	for i, d := range docs {
		c.Within([]string{shape.Nth(i)}, func() { rows = append(rows, bootRow(c, d)) })
	}
	return rows
}

func bootRow(c *shape.Checker, d BootNetworkDoc) spec.BootNetwork {
	out := spec.BootNetwork{Match: bootMatch(c, d.Match), VLAN: d.VLAN.N, MTU: mtu(c, d.MTU), DHCP: dhcp(d.DHCP),
		Addresses: addresses(c, d.Addresses), Gateway: gateway(c, d.Gateway), DNS: resolvers(c, d.DNS), Routes: routes(c, d.Routes)}
	if d.VLAN.Set() && (d.VLAN.N < 1 || d.VLAN.N > 4094) {
		c.Errorf(d.VLAN.At, "range", "", "the id of a VLAN is between 1 and 4094, not %d", d.VLAN.N)
	}
	if b := d.Bond; b != nil {
		out.Bond = &spec.BootBond{Mode: b.Mode.S, MinLinks: minLinks(c, b.Mode, b.LACPRate, b.MinLinks, maxBond), HashPolicy: transmitHashPolicy(c, b.Mode, b.HashPolicy)}
		if b.LACPRate.S == spec.LACPFast {
			out.Bond.LACPRate = spec.LACPFast
		}
	}
	if len(out.Addresses) == 0 && out.DHCP == "" {
		c.Errorf(d.At, "conflict", "write dhcp: ipv4", "nothing gives the loader an address")
	}
	checkRouters(c, d.Gateway, d.Routes, spec.Interface{DHCP: out.DHCP, Addresses: out.Addresses, Routes: out.Routes})
	return out
}

func bootMatch(c *shape.Checker, d bootMatchDoc) spec.BootMatch {
	out := spec.BootMatch{Driver: d.Driver.S, PCI: d.PCI.S}
	for i, word := range d.MACs.List {
		if m := mac(c, shape.Text{S: word, At: d.MACs.Each[i]}); m != "" {
			out.MACs = append(out.MACs, m)
		}
	}
	for i, word := range d.UUIDs.List {
		if !uuidText.MatchString(strings.ToLower(word)) {
			c.Errorf(d.UUIDs.Each[i], "uuid", "'dmidecode -s system-uuid' prints it", "%q is not a UUID", word)
		}
		out.UUIDs = append(out.UUIDs, strings.ToLower(word))
	}
	if out.Driver != "" {
		c.Valid(d.Driver.At, rules.NICMatch(spec.NICMatch{Driver: out.Driver}))
	}
	if out.PCI != "" {
		c.Valid(d.PCI.At, rules.NICMatch(spec.NICMatch{PCI: out.PCI}))
	}
	if len(out.MACs)+len(out.UUIDs) == 0 && out.Driver == "" && out.PCI == "" {
		c.Errorf(d.At, "required", "{driver: NAME}, or macs, uuids or pci", "a match says which cards are meant")
	}
	return out
}
