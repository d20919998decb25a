// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// maxBond is how many members the bound of minLinks is taken from, where a match finds
// them.
const maxBond = 32

// BootNetwork checks what the loaders are told of the network, rows that v says, and gives
// their values their one spelling.
func BootNetwork(c *shape.Checker, v *tree.Value, rows []spec.BootNetwork) []spec.BootNetwork {
	for i := range rows {
		c.In(shape.Nth(i), func() { checkRow(c, v.List[i], &rows[i]) })
	}
	return rows
}

func checkRow(c *shape.Checker, v *tree.Value, out *spec.BootNetwork) {
	checkMatch(c, v.Get("match"), &out.Match)
	mtu(c, v, out.MTU)
	out.DHCP = dhcp(out.DHCP)
	addresses(c, v, out.Addresses)
	gateway(c, v, out.Gateway)
	out.DNS = resolvers(c, v.Get("dns"), out.DNS)
	routes(c, v, out.Routes)
	if at := c.At(v, "vlan"); at != (report.Pos{}) && (out.VLAN < 1 || out.VLAN > 4094) {
		c.Errorf(at, "range", "", "the id of a VLAN is between 1 and 4094, not %d", out.VLAN)
	}
	if b := out.Bond; b != nil {
		checkMode(c, v.Get("bond"), b.Mode, &b.LACPRate, &b.MinLinks, maxBond)
	}
	if len(out.Addresses) == 0 && out.DHCP == "" {
		c.Errorf(c.At(v), "conflict", "write dhcp: ipv4", "nothing gives the loader an address")
	}
	checkRouters(c, v, spec.Interface{DHCP: out.DHCP, Addresses: out.Addresses, Gateway: out.Gateway, Routes: out.Routes})
}

func checkMatch(c *shape.Checker, v *tree.Value, m *spec.BootMatch) {
	var macs []string
	for i, word := range m.MACs {
		if a := mac(c, c.Nth(v.Get("macs"), i), word); a != "" {
			macs = append(macs, a)
		}
	}
	m.MACs = macs
	for i, word := range m.UUIDs {
		m.UUIDs[i] = strings.ToLower(word)
		if !uuidText.MatchString(m.UUIDs[i]) {
			c.Errorf(c.Nth(v.Get("uuids"), i), "uuid", "'dmidecode -s system-uuid' prints it", "%q is not a UUID", word)
		}
	}
	if m.Driver != "" {
		c.Valid(c.At(v, "driver"), rules.NICMatch(spec.NICMatch{Driver: m.Driver}))
	}
	if m.PCI != "" {
		c.Valid(c.At(v, "pci"), rules.NICMatch(spec.NICMatch{PCI: m.PCI}))
	}
	if len(m.MACs)+len(m.UUIDs) == 0 && m.Driver == "" && m.PCI == "" {
		c.Errorf(c.At(v), "required", "{driver: NAME}, or macs, uuids or pci", "a match says which cards are meant")
	}
}
