// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
)

// MaxCards is how many cards a machine has at most.
const MaxCards = 15

// plug is how a node's cards are connected: their addresses, the one of the boot first, the
// network on which they are, and where on it the registry answers.
type plug struct {
	macs     []string
	network  machine.Network
	registry netip.AddrPort
}

// registryPort is the port of the registry on the machine's network.
const registryPort = 5000

// plugFor returns the cards of a node, at least so many, on the network that it expects.
func plugFor(o *spec.Overlay, atLeast int) (plug, error) {
	p := plug{registry: netip.MustParseAddrPort("10.0.2.100:5000")} // on QEMU's own network
	boot, err := bootInterface(o)
	if err != nil {
		return p, err
	}
	if boot != nil {
		p.add(boot.MAC)
		if boot.Bond != nil {
			p.add(boot.Bond.Members...)
		}
		if err := p.setNetwork(boot); err != nil {
			return p, err
		}
	}
	p.add(o.Match.MACs...)
	for _, one := range o.Network.Interfaces {
		p.add(one.MAC)
		if one.Bond != nil {
			p.add(one.Bond.Members...)
		}
	}
	for i := 1; len(p.macs) < max(1, atLeast); i++ {
		p.add(fmt.Sprintf("52:54:00:ca:15:%02x", i)) // QEMU's own prefix
	}
	if len(p.macs) > MaxCards {
		return p, cli.Usage(fmt.Sprintf("at most %d", MaxCards), "%d network cards", len(p.macs))
	}
	return p, nil
}

func (p *plug) add(macs ...string) {
	for _, mac := range macs {
		if mac != "" && !slices.Contains(p.macs, mac) {
			p.macs = append(p.macs, mac)
		}
	}
}

// bootInterface returns the interface of the site that the node is reached by, nil where
// its card has the usual DHCP.
func bootInterface(o *spec.Overlay) (*spec.Interface, error) {
	all := o.Network.Interfaces
	own := func(one spec.Interface) bool { return one.Bond != nil || one.MAC != "" }
	for i, one := range all {
		if own(one) && (staticOf(one).IsValid() || one.DHCP == spec.DHCPv4 || one.DHCP == spec.DHCPBoth) {
			return &all[i], nil
		}
	}
	listed := func(mac string) bool {
		return slices.ContainsFunc(all, func(one spec.Interface) bool {
			return one.MAC == mac || one.Bond != nil && slices.Contains(one.Bond.Members, mac)
		})
	}
	if !slices.ContainsFunc(all, own) || slices.ContainsFunc(o.Match.MACs, func(mac string) bool { return !listed(mac) }) {
		return nil, nil
	}
	return nil, cli.Usage("the network of the machine has no VLANs and no router of IPv6",
		"node %s has no IPv4 address without a VLAN, so that it cannot be asked anything", o.Node)
}

// staticOf is the first IPv4 address of an interface, the zero value without one.
func staticOf(one spec.Interface) netip.Prefix {
	if one.VLAN != nil {
		return netip.Prefix{}
	}
	for _, text := range one.Addresses {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() {
			return p
		}
	}
	return netip.Prefix{}
}

// setNetwork makes the network one on which the interface's address is right.
func (p *plug) setNetwork(one *spec.Interface) error {
	static := staticOf(*one)
	if !static.IsValid() {
		return nil
	}
	n := machine.Network{Prefix: static.Masked(), Address: static.Addr()}
	used := []netip.Addr{static.Addr()}
	if router, err := netip.ParseAddr(one.Gateway); err == nil && n.Prefix.Contains(router) {
		n.Router = router
		used = append(used, router)
	}
	free := spare(n.Prefix, used)
	if len(free) < 3 {
		return cli.Usage("a network of /28 or larger", "the network %s has no room for what a node is tried with", n.Prefix)
	}
	if !n.Router.IsValid() {
		n.Router = free[2]
	}
	n.DNS = free[0]
	p.network, p.registry = n, netip.AddrPortFrom(free[1], registryPort)
	return nil
}

// spare returns up to three of the last addresses of a network that nobody uses, of those
// that DHCP does not give either: it gives some that follow the first of used.
func spare(network netip.Prefix, used []netip.Addr) (free []netip.Addr) {
	last := network.Addr().As4()
	for bit := network.Bits(); bit < 32; bit++ {
		last[bit/8] |= 1 << (7 - bit%8)
	}
	addr := netip.AddrFrom4(last).Prev() // below the broadcast
	for range 16 {
		if addr == network.Addr() || !network.Contains(addr) || len(free) == 3 {
			break
		}
		if !slices.Contains(used, addr) {
			free = append(free, addr)
		}
		addr = addr.Prev()
	}
	return free
}
