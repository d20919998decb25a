// SPDX-License-Identifier: Apache-2.0

package networkd

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// deviceFile returns the file of an interface that is made, see systemd.netdev(5), and ""
// for a card.
func deviceFile(i spec.Interface) string {
	var b strings.Builder
	switch {
	case i.Bond != nil:
		// Without a look at the members' links nothing but LACP would notice a dead one. The
		// address is the loader's, which DHCP knows.
		fmt.Fprintf(&b, "[NetDev]\nName=%s\nKind=bond\nMACAddress=%s\n\n[Bond]\nMode=%s\nMIIMonitorSec=100ms\n", i.Name, i.Bond.Members[0], i.Bond.Mode)
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
		if mac, err := net.ParseMAC(macOf(i, all)); err == nil && len(mac) == 6 {
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

// macOf is the address of an interface, "" where only its name is known.
func macOf(i spec.Interface, all []spec.Interface) string {
	switch {
	case i.Bond != nil:
		return i.Bond.Members[0]
	case i.VLAN != nil:
		if on := named(all, i.VLAN.On); on.VLAN == nil {
			return macOf(on, all)
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
