// SPDX-License-Identifier: Apache-2.0

// Package plug says how the cards of a machine are connected that stands in for a node: on a
// network where the node's addresses are right, with the registry on it, behind a switch that
// the node expects. A [Probe] in that switch asks whether the machine answers.
package plug

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
)

// MaxCards is how many cards a machine has at most.
const MaxCards = 15

// Plug says how a node's cards are connected: their addresses, the one of the boot first, the
// network on which they are, where on it the registry answers, and what is between.
type Plug struct {
	MACs     []string
	Network  machine.Network
	Registry netip.AddrPort
	Between  *machine.Switch    // nil: one card needs none
	Rows     []spec.BootNetwork // what site.cpio says of the cards
}

// registryPort is the port of the registry on the machine's network.
const registryPort = 5000

// For returns the cards of a node, at least so many, on the network that it expects. rows
// are the site's bootNetwork.
func For(o *spec.Overlay, rows []spec.BootNetwork, atLeast int) (Plug, error) {
	p := Plug{Registry: netip.MustParseAddrPort("10.0.2.100:5000")} // on QEMU's own network
	by, err := wayTo(o, rows)
	if err != nil {
		return p, err
	}
	p.add(by.cards...)
	if by.row != nil {
		p.Rows = []spec.BootNetwork{*by.row}
	}
	if by.vlan != 0 || by.lacp {
		p.Between = &machine.Switch{VLAN: uint16(by.vlan), LACP: by.lacp}
	}
	if err := p.setNetwork(by.static, by.gateway); err != nil {
		return p, err
	}
	p.add(o.Match.MACs...)
	for _, one := range o.Network.Interfaces {
		p.add(cardsOf(one)...)
	}
	for i := 1; len(p.MACs) < max(1, atLeast); i++ {
		p.add(fmt.Sprintf("52:54:00:ca:15:%02x", i)) // QEMU's own prefix
	}
	if p.Between == nil && len(p.MACs) > 1 {
		p.Between = &machine.Switch{}
	}
	if p.Between != nil {
		p.Between.Filter = firstIs(p.MACs[0])
	}
	if len(p.MACs) > MaxCards {
		return p, cli.Usage(fmt.Sprintf("at most %d", MaxCards), "%d network cards", len(p.MACs))
	}
	return p, nil
}

func (p *Plug) add(macs ...string) {
	for _, mac := range macs {
		if mac != "" && !slices.Contains(p.MACs, mac) {
			p.MACs = append(p.MACs, mac)
		}
	}
}

// setNetwork makes the network one on which the address is right, where there is one.
func (p *Plug) setNetwork(static netip.Prefix, gateway string) error {
	if !static.IsValid() {
		return nil
	}
	n := machine.Network{Prefix: static.Masked(), Address: static.Addr()}
	used := []netip.Addr{static.Addr()}
	if router, err := netip.ParseAddr(gateway); err == nil && n.Prefix.Contains(router) {
		n.Router = router
		used = append(used, router)
	}
	free := spare(n.Prefix, used)
	if len(free) < 3 {
		return cli.Usage("a network of /28 or larger", "the network %s has too few addresses to try a node", n.Prefix)
	}
	if !n.Router.IsValid() {
		n.Router = free[2]
	}
	n.DNS = free[0]
	p.Network, p.Registry = n, netip.AddrPortFrom(free[1], registryPort)
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

// firstIs passes on who asks for an address by DHCP once the boot card has, or a bond that has
// its address. The network gives addresses in the order of questions, and the machine is
// reached by the first.
func firstIs(card string) func(from int, frame []byte) []byte {
	mac, err := net.ParseMAC(card)
	var asked atomic.Bool
	return func(from int, frame []byte) []byte {
		switch {
		case from == 0 || err != nil || !machine.AsksDHCP(frame): // rules.MAC has looked at it
		case bytes.Equal(frame[6:12], mac):
			asked.Store(true)
		case !asked.Load():
			return nil // it asks again
		}
		return frame
	}
}
