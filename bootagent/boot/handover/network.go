// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
)

// network writes systemd-networkd's files. The interface that the loader used
// keeps its lease: same hardware address, same client id, and what it has is not
// dropped when networkd starts. That no value holds a line break was decided with the
// overlay, see trust: the publisher's rehearsal finds it as well.
func (n *Node) network() error {
	own := n.Overlay.Network
	shared := resolverLines(own)
	static := false
	for i, card := range own.Interfaces {
		if n.Lease != nil && card.MAC == n.Lease.MAC {
			static = true
		}
		if err := n.write(fmt.Sprintf("/etc/systemd/network/10-caisson-static%d.network", i), []byte(staticFile(card, shared)), 0o644); err != nil {
			return err
		}
	}
	switch {
	case static:
		return nil
	case n.Lease != nil:
		return n.write("/etc/systemd/network/20-caisson-boot.network", []byte("[Match]\nMACAddress="+n.Lease.MAC+
			"\n\n[Network]\nDHCP=ipv4\nKeepConfiguration=dhcp\n"+shared+
			"\n[DHCPv4]\nClientIdentifier=mac\nUseHostname=no\n"), 0o644)
	case len(own.Interfaces) == 0:
		// Booted without network: whichever interface comes alive later may.
		return n.write("/etc/systemd/network/20-caisson-any.network", []byte("[Match]\nType=ether\nKind=!*\n\n[Link]\nRequiredForOnline=no\n"+
			"\n[Network]\nDHCP=ipv4\n"+shared+"\n[DHCPv4]\nClientIdentifier=mac\nUseHostname=no\n"), 0o644)
	}
	return nil
}

func resolverLines(own spec.Network) string {
	var b strings.Builder
	for _, server := range own.DNS {
		fmt.Fprintf(&b, "DNS=%s\n", server)
	}
	if len(own.Search) > 0 {
		fmt.Fprintf(&b, "Domains=%s\n", strings.Join(own.Search, " "))
	}
	for _, server := range own.NTP {
		fmt.Fprintf(&b, "NTP=%s\n", server)
	}
	return b.String()
}

func staticFile(card spec.Interface, shared string) string {
	var b strings.Builder
	b.WriteString("[Match]\n")
	if card.MAC != "" {
		fmt.Fprintf(&b, "MACAddress=%s\n", card.MAC)
	} else {
		fmt.Fprintf(&b, "Name=%s\n", card.Name)
	}
	if card.MTU > 0 {
		fmt.Fprintf(&b, "\n[Link]\nMTUBytes=%d\n", card.MTU)
	}
	b.WriteString("\n[Network]\nDHCP=no\n")
	for _, address := range card.Addresses {
		fmt.Fprintf(&b, "Address=%s\n", address)
	}
	if card.Gateway != "" {
		fmt.Fprintf(&b, "Gateway=%s\n", card.Gateway)
	}
	b.WriteString(shared)
	return b.String()
}

// resolver points at systemd-resolved where the layer has it, else it writes
// what is known.
func (n *Node) resolver() error {
	if n.exists("/usr/lib/systemd/systemd-resolved") {
		return n.put("/etc/resolv.conf", safepath.Thing{Mode: unix.S_IFLNK, Target: "../run/systemd/resolve/stub-resolv.conf"})
	}
	var b strings.Builder
	if search := n.Overlay.Network.Search; len(search) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(search, " "))
	}
	servers := n.Overlay.Network.DNS
	if len(servers) == 0 && n.Lease != nil {
		for _, server := range n.Lease.DNS {
			servers = append(servers, server.String())
		}
	}
	for _, server := range servers {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	return n.write("/etc/resolv.conf", []byte(b.String()), 0o644)
}

// certificates adds the site's CAs to the store that the layer's programs read.
func (n *Node) certificates() error {
	if len(n.Overlay.CAs) == 0 {
		return nil
	}
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	text, err := os.ReadFile(n.path(bundle))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, ca := range n.Overlay.CAs {
		text = append(append(text, strings.TrimSpace(ca)...), '\n')
	}
	return n.write(bundle, text, 0o644)
}
