// SPDX-License-Identifier: Apache-2.0

// Package table says which interfaces a machine has: cards, bonds and VLANs with their addresses,
// as the site's own network.interfaces has them. A node's it words for systemd-networkd, so that it
// carries on what the loader has made. By which a loader reaches its registry, before anything is
// known of its node, may stand in four places, and the first that says anything of this machine is
// all that counts:
//
//  1. the kernel's command line, in the words of dracut.cmdline(7);
//  2. rows of bootNetwork in site.cpio, by what the cards are;
//  3. the row of this node in site.cpio, where the node has no DHCP;
//  4. nowhere: then each card is asked by DHCP.
//
// The package looks at nothing, writes nothing and changes nothing. Only bootagent/boot/network,
// bootagent/boot/initramfs, bootagent/boot/root, bootagent/boot/handover and bootagent/boot/kernel import it.
package table

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Machine holds the facts that decide which rows are meant.
type Machine struct {
	Words []string // of the kernel's command line
	Cards []Card   // sorted by name
	UUIDs []string // SMBIOS
	Boot  string   // address of the card that the machine booted by, "" where that is not known
}

// Card is an interface with hardware behind it.
type Card struct {
	Name, MAC   string // MAC is lower case, colon separated
	Driver, PCI string // as in [spec.BootMatch], "" where there is none
}

// Table describes the network that a loader makes.
type Table struct {
	spec.Network        // of Interfaces each card is here, and has its name of this kernel and its address
	Any          string // how cards are asked that Interfaces does not name, a word of [spec.Interface.DHCP]; "" not at all
	Source       string // where it stands, for people
}

// Plain reports whether nothing is made but an IPv4 address by DHCP on each card, which
// loaders of 0.9 do, too.
func (t Table) Plain() bool {
	return t.Any == spec.DHCPv4 && !slices.ContainsFunc(t.Interfaces, func(i spec.Interface) bool {
		return i.Bond != nil || i.VLAN != nil || i.DHCP != spec.DHCPv4 || len(i.Addresses) > 0 || i.MTU > 0
	})
}

// Make returns the table of a machine, and what of its sources is left out.
func Make(m Machine, b *spec.Bootstrap) (t Table, notes []string) {
	names := plain.Map(m.Cards, func(c Card) (name, mac string) { return c.Name, c.MAC })
	line, any, notes := Parse(m.Words, names, m.Boot)
	if any != "" || line.Interfaces != nil {
		return Table{line, any, "the kernel's command line"}, notes
	}
	for _, source := range []struct {
		name string
		make func() (spec.Network, []string)
	}{
		{"bootNetwork of site.cpio", func() (spec.Network, []string) { return m.byRows(b.Network) }},
		{"this node's row in site.cpio", func() (spec.Network, []string) { return m.byNode(b.Nodes) }},
	} {
		n, left := source.make()
		if notes = append(notes, left...); n.Interfaces != nil {
			n.DNS = append(line.DNS, n.DNS...)
			return Table{n, "", source.name}, notes
		}
	}
	return Table{spec.Network{DNS: line.DNS}, spec.DHCPv4, "nothing: each card is asked by DHCP"}, notes
}

// byRows are the interfaces that rows make of the cards that they match.
func (m Machine) byRows(rows []spec.BootNetwork) (n spec.Network, notes []string) {
	taken, bonds := map[string]bool{}, 0
	for i, row := range rows {
		var cards []Card
		for _, c := range m.Cards {
			if !taken[c.MAC] && m.matches(row.Match, c) {
				taken[c.MAC] = true
				cards = append(cards, c)
			}
		}
		if len(cards) == 0 {
			continue
		}
		if row.Bond == nil && len(row.Addresses) > 0 && len(cards) > 1 { // an address is that of one
			notes = append(notes, fmt.Sprintf("bootNetwork[%d]: it matches %d cards, and only %s gets its addresses", i, len(cards), cards[0].Name))
			cards = cards[:1]
		}
		var below []spec.Interface
		if row.Bond != nil {
			bond := spec.Bond{Mode: row.Bond.Mode, LACPRate: row.Bond.LACPRate, MinLinks: row.Bond.MinLinks, HashPolicy: row.Bond.HashPolicy}
			bond.Members = plain.Each(cards, func(c Card) string { return c.MAC })
			slices.Sort(bond.Members)
			below = []spec.Interface{{Name: fmt.Sprintf("bond%d", bonds), Bond: &bond}}
			bonds++
		} else {
			below = plain.Each(cards, func(c Card) spec.Interface { return spec.Interface{Name: c.Name, MAC: c.MAC} })
		}
		for _, on := range below {
			on.MTU = row.MTU
			top := &on
			if row.VLAN > 0 {
				n.Interfaces = append(n.Interfaces, on)
				top = &spec.Interface{Name: vlanName(on.Name, row.VLAN), VLAN: &spec.VLAN{ID: row.VLAN, On: on.Name}, MTU: row.MTU}
			}
			top.DHCP, top.Addresses, top.Gateway, top.Routes = row.DHCP, row.Addresses, row.Gateway, row.Routes
			n.Interfaces = append(n.Interfaces, *top)
		}
		for _, server := range row.DNS {
			if !slices.Contains(n.DNS, server) {
				n.DNS = append(n.DNS, server)
			}
		}
	}
	return n, notes
}

// vlanName is the usual name, where a name may be that long.
func vlanName(on string, id int64) string {
	if name := fmt.Sprintf("%s.%d", on, id); rules.Interface(name) == nil {
		return name
	}
	return fmt.Sprintf("vlan%d", id)
}

// matches reports whether all that a match has is so of a card and its machine. One that
// has nothing means no card.
func (m Machine) matches(want spec.BootMatch, c Card) bool {
	some := func(of []string) bool {
		return slices.ContainsFunc(of, func(uuid string) bool { return slices.Contains(want.UUIDs, uuid) })
	}
	return (len(want.MACs) > 0 || len(want.UUIDs) > 0 || want.Driver != "" || want.PCI != "") &&
		(len(want.MACs) == 0 || slices.Contains(want.MACs, c.MAC)) &&
		(len(want.UUIDs) == 0 || some(m.UUIDs)) &&
		(want.Driver == "" || want.Driver == c.Driver) &&
		(want.PCI == "" || want.PCI == c.PCI)
}

// byNode are the interfaces of the first row that one of the cards, or the machine, is in.
func (m Machine) byNode(rows []spec.BootNode) (n spec.Network, notes []string) {
	for _, row := range rows {
		if !slices.ContainsFunc(m.Cards, func(c Card) bool { return m.matches(row.Match, c) }) {
			continue
		}
		return m.here(row.Network)
	}
	return n, nil
}

// here returns those of a node's interfaces that can be made on this machine: its cards with their
// names of this kernel, which has not renamed them.
func (m Machine) here(of spec.Network) (n spec.Network, notes []string) {
	n.DNS, n.Search = of.DNS, of.Search
	names := map[string]string{} // of this kernel by those of the node
	for _, i := range of.Interfaces {
		switch {
		case i.VLAN != nil: // below
			continue
		case i.Bond != nil:
			if !slices.ContainsFunc(m.Cards, func(c Card) bool { return slices.Contains(i.Bond.Members, c.MAC) }) {
				notes = append(notes, fmt.Sprintf("bond %s: none of its cards is here", i.Name))
				continue
			}
		default:
			at := slices.IndexFunc(m.Cards, func(c Card) bool { return i.MAC == c.MAC || i.MAC == "" && i.Name == c.Name })
			if at < 0 {
				notes = append(notes, fmt.Sprintf("card %s is not here", strings.TrimSpace(i.Name+" "+i.MAC)))
				continue
			}
			if i.Name != "" {
				names[i.Name] = m.Cards[at].Name
			}
			i.Name, i.MAC = m.Cards[at].Name, m.Cards[at].MAC
			n.Interfaces = append(n.Interfaces, i)
			continue
		}
		names[i.Name] = i.Name
		n.Interfaces = append(n.Interfaces, i)
	}
	for _, i := range of.Interfaces {
		if i.VLAN == nil {
			continue
		}
		on, made := names[i.VLAN.On]
		if !made {
			notes = append(notes, fmt.Sprintf("VLAN %s: %s is not here", i.Name, i.VLAN.On))
			continue
		}
		i.VLAN = &spec.VLAN{ID: i.VLAN.ID, On: on}
		n.Interfaces = append(n.Interfaces, i)
	}
	if !slices.ContainsFunc(n.Interfaces, func(i spec.Interface) bool { return i.DHCP != "" || len(i.Addresses) > 0 }) {
		n.Interfaces = nil
	}
	return n, notes
}
