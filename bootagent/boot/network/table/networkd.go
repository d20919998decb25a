// SPDX-License-Identifier: Apache-2.0

package table

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/spec"
)

// Boot is the network that a loader made: its lease, and the interface of that with what it
// is made of. The zero value is a boot without one.
type Boot struct {
	Lease *record.Lease
	Made  spec.Network // the interface of the lease is the last one; empty from loaders of 0.9
}

// NetworkdFiles returns the texts of the files by which systemd-networkd makes a node's interfaces,
// by their names, see systemd.network(5) and systemd.netdev(5). The interface that the loader used
// keeps its address: same hardware address, same client id, and what it has is not dropped when
// networkd starts. Where the site does not name the loader's cards they stay as the loader
// has made them.
func NetworkdFiles(site spec.Network, boot Boot) map[string]string {
	boot = boot.complete()
	files := fileSet{}
	lines := resolverLines(site)
	for i, one := range site.Interfaces {
		files.add(fmt.Sprintf("10-caisson-%02d", i), one, site.Interfaces, lines, boot.is(one, site.Interfaces))
	}
	switch {
	case boot.coveredBy(site.Interfaces):
	case boot.Lease != nil:
		if len(site.DNS) == 0 && boot.Lease.Static { // nobody else says
			lines = resolverLines(spec.Network{DNS: boot.Made.DNS, Search: site.Search})
		}
		all := boot.Made.Interfaces
		for i, one := range all {
			name, top := "20-caisson-boot", i == len(all)-1
			if !top {
				name = fmt.Sprintf("20-caisson-boot-%02d", i)
			}
			files.add(name, one, all, lines, top)
		}
	case len(site.Interfaces) == 0:
		// Booted without network: whichever interface comes alive later may.
		files["20-caisson-any.network"] = "[Match]\nType=ether\nKind=!*\n\n[Link]\nRequiredForOnline=no\n" +
			"\n[Network]\nDHCP=ipv4\n" + lines + leaseLines + "UseMTU=yes\n"
	}
	return files
}

// fileSet holds texts of files, by name.
type fileSet map[string]string

// add adds the files of one of all interfaces.
func (files fileSet) add(name string, one spec.Interface, all []spec.Interface, shared string, keeps bool) {
	if one.Bond != nil {
		for j, member := range one.Bond.Members {
			files[fmt.Sprintf("%s-member%d.network", name, j)] = memberFile(one, member)
		}
	}
	if text := deviceFile(one); text != "" {
		files[name+".netdev"] = text
	}
	files[name+".network"] = interfaceFile(one, all, shared, keeps)
}

func resolverLines(own spec.Network) string {
	var b strings.Builder
	for _, server := range own.DNS {
		fmt.Fprintf(&b, "DNS=%s\n", server)
	}
	if len(own.Search) > 0 {
		fmt.Fprintf(&b, "Domains=%s\n", strings.Join(own.Search, " "))
	}
	return b.String()
}

// complete is b with what a loader of 0.9, which knows one way, did not say.
func (b Boot) complete() Boot {
	if b.Lease != nil && len(b.Made.Interfaces) == 0 {
		b.Made.Interfaces = []spec.Interface{{MAC: b.Lease.MAC, Name: b.Lease.Interface, DHCP: spec.DHCPv4}}
	}
	return b
}

// is reports whether one of the site's interfaces is that by which the loader has its
// address: made of the same cards in the same way, whatever it is called.
func (b Boot) is(one spec.Interface, all []spec.Interface) bool {
	return b.Lease != nil && same(one, all, b.Made.Interfaces[len(b.Made.Interfaces)-1], b.Made.Interfaces)
}

func same(a spec.Interface, ofA []spec.Interface, b spec.Interface, ofB []spec.Interface) bool {
	switch {
	case a.VLAN != nil:
		return b.VLAN != nil && a.VLAN.ID == b.VLAN.ID && same(Named(ofA, a.VLAN.On), ofA, Named(ofB, b.VLAN.On), ofB)
	case a.Bond != nil:
		return b.Bond != nil && share(a.Bond.Members, b.Bond.Members)
	}
	return b.VLAN == nil && b.Bond == nil && isCard(a, b)
}

// Names are those of the loader's bonds and VLANs that the site makes, too, under other
// names, and "" for those that it does not make where it says how their cards are used.
func (b Boot) Names(site spec.Network) map[string]string {
	b = b.complete()
	names := map[string]string{}
	if !b.coveredBy(site.Interfaces) {
		return names
	}
	for _, i := range b.Made.Interfaces {
		if i.Bond == nil && i.VLAN == nil {
			continue
		}
		at := slices.IndexFunc(site.Interfaces, func(s spec.Interface) bool { return same(s, site.Interfaces, i, b.Made.Interfaces) })
		switch {
		case at < 0:
			names[i.Name] = ""
		case site.Interfaces[at].Name != i.Name:
			names[i.Name] = site.Interfaces[at].Name
		}
	}
	return names
}

// Named returns the interface of a name, one with nothing else where there is none.
func Named(all []spec.Interface, name string) spec.Interface {
	if i := slices.IndexFunc(all, func(i spec.Interface) bool { return i.Name == name }); i >= 0 {
		return all[i]
	}
	return spec.Interface{Name: name}
}

func share(a, b []string) bool {
	return slices.ContainsFunc(a, func(mac string) bool { return slices.Contains(b, mac) })
}

// isCard reports whether an entry of the site means a card of the loader's, which has both
// address and name.
func isCard(entry, card spec.Interface) bool {
	return entry.MAC != "" && entry.MAC == card.MAC || entry.MAC == "" && entry.Name == card.Name
}

// coveredBy reports whether the site says of one of the loader's cards how it is used.
func (b Boot) coveredBy(all []spec.Interface) bool {
	return slices.ContainsFunc(b.Made.Interfaces, func(b spec.Interface) bool {
		return slices.ContainsFunc(all, func(a spec.Interface) bool {
			switch {
			case a.VLAN != nil || b.VLAN != nil: // what is below says it
				return false
			case a.Bond != nil && b.Bond != nil:
				return share(a.Bond.Members, b.Bond.Members)
			case a.Bond != nil:
				return slices.Contains(a.Bond.Members, b.MAC)
			case b.Bond != nil:
				return slices.Contains(b.Bond.Members, a.MAC)
			}
			return isCard(a, b)
		})
	})
}

// deviceFile returns the file of an interface that is made, see systemd.netdev(5), and ""
// for a card.
func deviceFile(i spec.Interface) string {
	var b strings.Builder
	switch {
	case i.Bond != nil:
		// Without a look at the members' links nothing but LACP would notice a dead one. The
		// address is the loader's, which DHCP knows.
		fmt.Fprintf(&b, "[NetDev]\nName=%s\nKind=bond\nMACAddress=%s\n\n[Bond]\nMode=%s\nMIIMonitorSec=100ms\n", i.Name,
			i.Bond.Members[0], i.Bond.Mode)
		if i.Bond.LACPRate != "" {
			fmt.Fprintf(&b, "LACPTransmitRate=%s\n", i.Bond.LACPRate)
		}
		if i.Bond.MinLinks > 0 {
			fmt.Fprintf(&b, "MinLinks=%d\n", i.Bond.MinLinks)
		}
		if i.Bond.HashPolicy != "" {
			fmt.Fprintf(&b, "TransmitHashPolicy=%s\n", i.Bond.HashPolicy)
		}
	case i.VLAN != nil:
		fmt.Fprintf(&b, "[NetDev]\nName=%s\nKind=vlan\n\n[VLAN]\nId=%d\n", i.Name, i.VLAN.ID)
	}
	return b.String()
}

// memberFile puts a card into a bond. Its address is that of the hardware: in the bond
// it has the bond's.
func memberFile(bond spec.Interface, mac string) string {
	text := fmt.Sprintf("[Match]\nPermanentMACAddress=%s\nKind=!*\n\n[Link]\nRequiredForOnline=no\n\n[Network]\nBond=%s\n", mac, bond.Name)
	if mac == bond.Bond.Primary {
		text += "PrimarySlave=yes\n"
	}
	return text
}

// interfaceFile returns the settings of one of all interfaces, which have the shared lines
// in common. One that keeps is the loader's, with its lease.
func interfaceFile(i spec.Interface, all []spec.Interface, shared string, keeps bool) string {
	var b strings.Builder
	b.WriteString("[Match]\n")
	if i.MAC != "" { // and no VLAN or bond that has the same
		fmt.Fprintf(&b, "MACAddress=%s\nKind=!*\n", i.MAC)
	} else {
		fmt.Fprintf(&b, "Name=%s\n", i.Name)
	}
	reached := i.DHCP != "" || len(i.Addresses) > 0
	waits := reached && !i.Optional // what only carries others never has an address to wait for
	if i.MTU > 0 || !waits {
		b.WriteString("\n[Link]\n")
	}
	if i.MTU > 0 {
		fmt.Fprintf(&b, "MTUBytes=%d\n", i.MTU)
	}
	if !waits {
		b.WriteString("RequiredForOnline=no\n")
	}
	fmt.Fprintf(&b, "\n[Network]\nDHCP=%s\n", dhcpWord(i.DHCP))
	if !reached {
		b.WriteString("LinkLocalAddressing=no\nIPv6AcceptRA=no\n")
	}
	if keeps && (i.DHCP == spec.DHCPv4 || i.DHCP == spec.DHCPBoth) {
		b.WriteString("KeepConfiguration=dhcp\n")
	}
	for _, address := range i.Addresses {
		fmt.Fprintf(&b, "Address=%s\n", address)
	}
	onLink := i.OnLink(i.Gateway)
	if i.Gateway != "" && !onLink {
		fmt.Fprintf(&b, "Gateway=%s\n", i.Gateway)
	}
	for _, other := range all {
		if other.VLAN != nil && other.VLAN.On == i.Name {
			fmt.Fprintf(&b, "VLAN=%s\n", other.Name)
		}
	}
	b.WriteString(shared)
	if i.DHCP != "" {
		b.WriteString(leaseLines)
		if i.MTU == 0 {
			b.WriteString("UseMTU=yes\n")
		}
	}
	if i.DHCP == spec.DHCPv6 || i.DHCP == spec.DHCPBoth {
		b.WriteString("\n[DHCPv6]\nDUIDType=link-layer\n")
		if mac, err := net.ParseMAC(MAC(i, all)); err == nil && len(mac) == 6 {
			fmt.Fprintf(&b, "IAID=%d\n", binary.BigEndian.Uint32(mac[2:]))
		}
	}
	if onLink {
		fmt.Fprintf(&b, "\n[Route]\nGateway=%s\nGatewayOnLink=yes\n", i.Gateway)
	}
	for _, r := range i.Routes {
		fmt.Fprintf(&b, "\n[Route]\nDestination=%s\n", r.To)
		if r.Via != "" {
			fmt.Fprintf(&b, "Gateway=%s\n", r.Via)
		}
		if i.OnLink(r.Via) {
			b.WriteString("GatewayOnLink=yes\n")
		}
		if r.Metric > 0 {
			fmt.Fprintf(&b, "Metric=%d\n", r.Metric)
		}
	}
	return b.String()
}

// leaseLines say what to use of an answer by DHCPv4 beside addresses, routes and
// resolvers: as the loader does, so that a name without a dot is found in both.
const leaseLines = "\n[DHCPv4]\nClientIdentifier=mac\nUseHostname=no\nUseDomains=yes\n"

// MAC returns the address of the card that an interface has its own from, "" where only its name is known.
func MAC(i spec.Interface, all []spec.Interface) string {
	switch {
	case i.Bond != nil:
		return i.Bond.Members[0]
	case i.VLAN != nil:
		if on := Named(all, i.VLAN.On); on.VLAN == nil {
			return MAC(on, all)
		}
	}
	return i.MAC
}

// dhcpWord translates for systemd-networkd a word of [spec.Interface.DHCP]. One that is
// not known here asks for nothing.
func dhcpWord(word string) string {
	if word == spec.DHCPBoth {
		return "yes"
	}
	if slices.Contains([]string{spec.DHCPv4, spec.DHCPv6}, word) {
		return word
	}
	return "no"
}
