// SPDX-License-Identifier: Apache-2.0

// Package plug says how the cards of a machine are connected that stands in for a node: on a
// network where the node's addresses are right, with the registry on it, behind a switch that
// the node expects. A [Probe] in that switch asks whether the machine answers.
package plug

import (
	"bytes"
	"cmp"
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

// way says how a node is reached.
type way struct {
	cards   []string // those that it takes, none where any will do
	vlan    int64    // 0: without a tag
	lacp    bool
	static  netip.Prefix // of IPv4, the zero value where DHCP gives one
	gateway string
	row     *spec.BootNetwork // that the loader has for it
}

// wayTo returns how a node is reached: as bootNetwork has it for its cards, else by the first
// interface that has IPv4 without a VLAN, else by one with an address on a VLAN, as in the
// node's row of site.cpio.
func wayTo(o *spec.Overlay, rows []spec.BootNetwork) (way, error) {
	if row := rowOf(o, rows); row != nil {
		return byRow(o, row), nil
	}
	all := o.Network.Interfaces
	for _, one := range all {
		if static := staticOf(one.Addresses); one.VLAN == nil && len(cardsOf(one)) > 0 &&
			(static.IsValid() || one.DHCP == spec.DHCPv4 || one.DHCP == spec.DHCPBoth) {
			return way{cards: cardsOf(one), lacp: lacp(one), static: static, gateway: one.Gateway}, nil
		}
	}
	for _, one := range all {
		on := slices.IndexFunc(all, func(below spec.Interface) bool {
			return one.VLAN != nil && below.Name == one.VLAN.On && len(cardsOf(below)) > 0
		})
		if static := staticOf(one.Addresses); on >= 0 && static.IsValid() && o.Network.Static() {
			return way{cards: cardsOf(all[on]), vlan: one.VLAN.ID, lacp: lacp(all[on]), static: static, gateway: one.Gateway}, nil
		}
	}
	listed := func(mac string) bool {
		return slices.ContainsFunc(all, func(one spec.Interface) bool { return slices.Contains(cardsOf(one), mac) })
	}
	own := func(one spec.Interface) bool { return len(cardsOf(one)) > 0 }
	if !slices.ContainsFunc(all, own) || slices.ContainsFunc(o.Match.MACs, func(mac string) bool { return !listed(mac) }) {
		return way{}, nil
	}
	return way{}, cli.Usage("a loader asks by DHCP on cards and bonds, has the addresses of nodes without DHCP, and does "+
		"what bootNetwork says of a node's macs or uuids; there is no router of IPv6 here",
		"node %s has no IPv4 address before its system runs, so that it cannot be asked anything", o.Node)
}

// byRow is the way of a row; where the system has an address on the same network, that one.
func byRow(o *spec.Overlay, row *spec.BootNetwork) way {
	w := way{vlan: row.VLAN, lacp: row.Bond != nil && row.Bond.Mode == spec.Bond8023AD, static: staticOf(row.Addresses),
		gateway: row.Gateway, row: row}
	w.cards = slices.DeleteFunc(slices.Clone(o.Network.Cards(o.Match.MACs)), func(mac string) bool {
		return len(row.Match.MACs) > 0 && !slices.Contains(row.Match.MACs, mac)
	})
	for _, one := range o.Network.Interfaces {
		if id := vlanOf(one); id == row.VLAN && !w.static.IsValid() {
			w.static, w.gateway = staticOf(one.Addresses), cmp.Or(w.gateway, one.Gateway)
		}
	}
	return w
}

func vlanOf(one spec.Interface) int64 {
	if one.VLAN == nil {
		return 0
	}
	return one.VLAN.ID
}

// rowOf is the first row that is of a card of the node, or of its UUID. Of drivers and places
// nothing is known: those of the machine are QEMU's.
func rowOf(o *spec.Overlay, rows []spec.BootNetwork) *spec.BootNetwork {
	cards := o.Network.Cards(o.Match.MACs)
	for i, row := range rows {
		m := row.Match
		if m.Driver != "" || m.PCI != "" || len(m.MACs)+len(m.UUIDs) == 0 {
			continue
		}
		if (len(m.MACs) == 0 || haveOne(m.MACs, cards)) && (len(m.UUIDs) == 0 || haveOne(m.UUIDs, o.Match.UUIDs)) {
			return &rows[i]
		}
	}
	return nil
}

func haveOne(list, of []string) bool {
	return slices.ContainsFunc(list, func(one string) bool { return slices.Contains(of, one) })
}

// cardsOf are the addresses of the cards that an interface is, or is made of.
func cardsOf(one spec.Interface) (macs []string) {
	if one.MAC != "" {
		macs = append(macs, one.MAC)
	}
	if one.Bond != nil {
		macs = append(macs, one.Bond.Members...)
	}
	return macs
}

func lacp(one spec.Interface) bool { return one.Bond != nil && one.Bond.Mode == spec.Bond8023AD }

// staticOf is the first IPv4 address, the zero value without one.
func staticOf(addresses []string) netip.Prefix {
	for _, text := range addresses {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() {
			return p
		}
	}
	return netip.Prefix{}
}
