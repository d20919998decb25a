// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/jsimonetti/rtnetlink/v2/driver"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/items/item/netif"
	"github.com/caisson-os/caisson/spec"
)

// Cards lists the interfaces that a device stands behind; sys is /sys.
func Cards(sys string) ([]table.Card, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var cards []table.Card
	for _, i := range all {
		if driver, pci, isDevice := netif.Device(sys, i.Name); isDevice && i.Flags&net.FlagLoopback == 0 {
			cards = append(cards, table.Card{Name: i.Name, MAC: netif.Address(sys, i.Name), Driver: driver, PCI: pci})
		}
	}
	slices.SortFunc(cards, func(a, b table.Card) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	return cards, nil
}

// makeLinks makes bonds and VLANs, and brings all interfaces up. What cannot be made is no
// way, and the others may be.
func (n *Network) makeLinks(conn *rtnetlink.Conn, cards []table.Card) error {
	var made []spec.Interface
	var errs []error
	all := slices.Clone(n.Table.Interfaces) // each behind what it is made of
	slices.SortStableFunc(all, func(a, b spec.Interface) int { return depth(a) - depth(b) })
	for _, i := range all {
		var err error
		switch {
		case i.Bond != nil:
			err = n.makeBond(conn, i, cards)
		case i.VLAN != nil:
			err = n.makeVLAN(conn, i)
		}
		if err == nil {
			err = setUp(conn, i)
		}
		if err != nil {
			err = fmt.Errorf("interface %s: %w", i.Name, err)
			n.say("%v", err)
			errs = append(errs, err)
			continue
		}
		made = append(made, i)
	}
	if n.Table.Interfaces = made; made == nil {
		return errors.Join(errs...)
	}
	return nil
}

func depth(i spec.Interface) int {
	switch {
	case i.VLAN != nil:
		return 2
	case i.Bond != nil:
		return 1
	}
	return 0
}

// makeBond makes a bond of those of its cards that are here. Its address is that of the
// first in any case, so that DHCP knows it whichever cards are.
func (n *Network) makeBond(conn *rtnetlink.Conn, i spec.Interface, cards []table.Card) error {
	if err := n.load("bonding"); err != nil {
		return err
	}
	mac, err := net.ParseMAC(i.Bond.Members[0])
	if err != nil {
		return err
	}
	miimon := uint32(100) // without a look at the links nothing but LACP would notice a dead one
	data := driver.Bond{Mode: mode(i.Bond.Mode), Miimon: &miimon}
	if i.Bond.Mode == spec.Bond8023AD {
		rate, links := driver.BondLacpRateSlow, uint32(i.Bond.MinLinks)
		if i.Bond.LACPRate == spec.LACPFast {
			rate = driver.BondLacpRateFast
		}
		data.AdLacpRate, data.MinLinks = &rate, &links
	}
	if at := slices.Index(spec.HashPolicies, i.Bond.HashPolicy); at >= 0 { // one of a later release is left out
		data.XmitHashPolicy = new(driver.BondXmitHashPolicy(at))
	}
	if err := add(conn, rtnetlink.LinkAttributes{Name: i.Name, Address: mac,
		Info: &rtnetlink.LinkInfo{Kind: "bond", Data: &data}}); err != nil {
		return fmt.Errorf("make the bond: %w", err)
	}
	bond, err := net.InterfaceByName(i.Name)
	if err != nil {
		return err
	}
	master, some := uint32(bond.Index), false
	for _, c := range cards {
		if !slices.Contains(i.Bond.Members, c.MAC) {
			continue
		}
		card, err := net.InterfaceByName(c.Name)
		if err == nil { // the kernel takes no card that is up
			err = conn.Link.Set(&rtnetlink.LinkMessage{Index: uint32(card.Index), Change: unix.IFF_UP})
		}
		if err == nil {
			err = conn.Link.Set(&rtnetlink.LinkMessage{Index: uint32(card.Index), Attributes: &rtnetlink.LinkAttributes{Master: &master}})
		}
		if err != nil {
			n.say("bond %s: member %s: %v", i.Name, c.Name, err)
			continue
		}
		some = true
		if c.MAC == i.Bond.Primary { // a bond with members keeps its mode, and works without
			info := &rtnetlink.LinkInfo{Kind: "bond", Data: &driver.Bond{Mode: driver.BondModeUnknown, Primary: new(uint32(card.Index))}}
			if err := conn.Link.Set(&rtnetlink.LinkMessage{Index: master, Attributes: &rtnetlink.LinkAttributes{Info: info}}); err != nil {
				n.say("bond %s: primary member %s: %v", i.Name, c.Name, err)
			}
		}
	}
	if !some {
		return errors.New("it has no member")
	}
	return nil
}

// mode is a word of spec.BondModes for the kernel.
func mode(word string) driver.BondMode {
	for m := driver.BondModeBalanceRR; m < driver.BondModeUnknown; m++ {
		if m.String() == word {
			return m
		}
	}
	return driver.BondModeBalanceTLB // which the library spells in another way
}

func (n *Network) makeVLAN(conn *rtnetlink.Conn, i spec.Interface) error {
	if err := n.load("8021q"); err != nil {
		return err
	}
	on, err := net.InterfaceByName(i.VLAN.On)
	if err != nil {
		return fmt.Errorf("%s: %w", i.VLAN.On, err)
	}
	if err := add(conn, rtnetlink.LinkAttributes{Name: i.Name, Type: uint32(on.Index),
		Info: &rtnetlink.LinkInfo{Kind: "vlan", Data: &vlan{id: uint16(i.VLAN.ID)}}}); err != nil {
		return fmt.Errorf("make the VLAN: %w", err)
	}
	return nil
}

// add makes an interface, unless it is there: the loader before it may have been here.
func add(conn *rtnetlink.Conn, a rtnetlink.LinkAttributes) error {
	if err := conn.Link.New(&rtnetlink.LinkMessage{Attributes: &a}); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// setUp brings an interface up, with its MTU.
func setUp(conn *rtnetlink.Conn, i spec.Interface) error {
	card, err := net.InterfaceByName(i.Name)
	if err != nil {
		return err
	}
	if err := setMTU(conn, uint32(card.Index), uint32(i.MTU)); err != nil {
		return err
	}
	if err := linkUp(conn, uint32(card.Index)); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	return nil
}

func setMTU(conn *rtnetlink.Conn, index, mtu uint32) error {
	if mtu == 0 {
		return nil // the driver's
	}
	if err := conn.Link.Set(&rtnetlink.LinkMessage{Index: index, Attributes: &rtnetlink.LinkAttributes{MTU: mtu}}); err != nil {
		return fmt.Errorf("MTU %d: %w", mtu, err)
	}
	return nil
}

func linkUp(conn *rtnetlink.Conn, index uint32) error {
	return conn.Link.Set(&rtnetlink.LinkMessage{Family: unix.AF_UNSPEC, Index: index, Flags: unix.IFF_UP, Change: unix.IFF_UP})
}

// vlan holds the kernel's attributes of a VLAN.
type vlan struct{ id uint16 }

// New implements [rtnetlink.LinkDriver].
func (*vlan) New() rtnetlink.LinkDriver { return new(vlan) }

// Kind implements [rtnetlink.LinkDriver].
func (*vlan) Kind() string { return "vlan" }

// Encode implements [rtnetlink.LinkDriver].
func (v *vlan) Encode(e *netlink.AttributeEncoder) error {
	e.Uint16(unix.IFLA_VLAN_ID, v.id)
	return nil
}

// Decode implements [rtnetlink.LinkDriver].
func (v *vlan) Decode(d *netlink.AttributeDecoder) error {
	for d.Next() {
		if d.Type() == unix.IFLA_VLAN_ID {
			v.id = d.Uint16()
		}
	}
	return d.Err()
}
