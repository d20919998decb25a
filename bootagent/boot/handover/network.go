// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
)

// network writes systemd-networkd's files, see systemd.network(5). The interface that the
// loader used keeps its lease: same hardware address, same client id, and what it has is
// not dropped when networkd starts. That no value holds a line break was decided with the
// overlay, see trust: the publisher's rehearsal finds it as well.
func (n *Node) network() error {
	own := n.Overlay.Network
	shared := resolverLines(own)
	bootCard := false // one of the site's interfaces is the loader's card
	for i, one := range own.Interfaces {
		keeps := n.Lease != nil && (one.MAC == n.Lease.MAC || one.MAC == "" && one.Name == n.Lease.Interface)
		bootCard = bootCard || keeps
		if one.Bond != nil {
			bootCard = bootCard || n.Lease != nil && slices.Contains(one.Bond.Members, n.Lease.MAC)
			for j, member := range one.Bond.Members {
				if err := n.networkd(fmt.Sprintf("%02d-member%d.network", i, j), memberFile(one.Name, member)); err != nil {
					return err
				}
			}
		}
		if text := deviceFile(one); text != "" {
			if err := n.networkd(fmt.Sprintf("%02d.netdev", i), text); err != nil {
				return err
			}
		}
		if err := n.networkd(fmt.Sprintf("%02d.network", i), interfaceFile(one, own.Interfaces, shared, keeps)); err != nil {
			return err
		}
	}
	switch {
	case bootCard:
		return nil
	case n.Lease != nil:
		return n.write("/etc/systemd/network/20-caisson-boot.network", []byte("[Match]\nMACAddress="+n.Lease.MAC+"\nKind=!*"+
			"\n\n[Network]\nDHCP=ipv4\nKeepConfiguration=dhcp\n"+shared+
			"\n[DHCPv4]\nClientIdentifier=mac\nUseHostname=no\n"), 0o644)
	case len(own.Interfaces) == 0:
		// Booted without network: whichever interface comes alive later may.
		return n.write("/etc/systemd/network/20-caisson-any.network", []byte("[Match]\nType=ether\nKind=!*\n\n[Link]\nRequiredForOnline=no\n"+
			"\n[Network]\nDHCP=ipv4\n"+shared+"\n[DHCPv4]\nClientIdentifier=mac\nUseHostname=no\n"), 0o644)
	}
	return nil
}

// networkd writes one of systemd-networkd's files for the site's interfaces.
func (n *Node) networkd(name, text string) error {
	return n.write("/etc/systemd/network/10-caisson-"+name, []byte(text), 0o644)
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
