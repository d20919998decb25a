// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

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
	return way{}, cli.Usage("a loader asks by DHCP on cards and bonds, has the addresses of nodes without DHCP, and does what bootNetwork says of a node's macs or uuids; there is no router of IPv6 here",
		"node %s has no IPv4 address before its system runs, so that it cannot be asked anything", o.Node)
}

// byRow is the way of a row; where the system has an address on the same network, that one.
func byRow(o *spec.Overlay, row *spec.BootNetwork) way {
	w := way{vlan: row.VLAN, lacp: row.Bond != nil && row.Bond.Mode == spec.Bond8023AD, static: staticOf(row.Addresses),
		gateway: row.Gateway, row: row}
	for _, mac := range o.Network.Cards(o.Match.MACs) {
		if len(row.Match.MACs) == 0 || slices.Contains(row.Match.MACs, mac) {
			w.cards = append(w.cards, mac)
		}
	}
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
