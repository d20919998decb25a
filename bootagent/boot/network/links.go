// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/jsimonetti/rtnetlink/v2/driver"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/items/item/netif"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/internal/fault"
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
			err := conn.Link.Set(&rtnetlink.LinkMessage{Index: master, Attributes: &rtnetlink.LinkAttributes{Info: info}})
			fault.Say(n.say, fault.In(err, "bond %s: primary member %s", i.Name, c.Name))
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
	return fault.But(conn.Link.New(&rtnetlink.LinkMessage{Attributes: &a}), unix.EEXIST)
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
	return fault.In(linkUp(conn, uint32(card.Index)), "up")
}

func setMTU(conn *rtnetlink.Conn, index, mtu uint32) error {
	if mtu == 0 {
		return nil // the driver's
	}
	return fault.In(conn.Link.Set(&rtnetlink.LinkMessage{Index: index, Attributes: &rtnetlink.LinkAttributes{MTU: mtu}}), "MTU %d", mtu)
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

// until waits until something is so, or ctx ends: it looks at once, whenever the kernel
// tells of a link, an address, a route or an advertisement, and each second for what it
// tells nobody.
func until(ctx context.Context, isSo func() (bool, error)) error {
	const groups = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV6_ROUTE | unix.RTMGRP_IPV6_IFINFO
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: groups})
	if err != nil {
		return err
	}
	defer conn.Close()                                                              // it was only heard
	over := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) }) // what fails is asked again in a second
	defer over()
	for {
		if is, err := isSo(); is || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		_, err := conn.Receive()
		var late net.Error
		if err != nil && !(errors.As(err, &late) && late.Timeout()) && !errors.Is(err, unix.ENOBUFS) { // which says that there was more
			return err
		}
	}
}

// link asks the kernel for an interface.
func link(name string) (rtnetlink.LinkMessage, error) {
	var m rtnetlink.LinkMessage
	err := with(name, func(conn *rtnetlink.Conn, index uint32) (err error) {
		m, err = conn.Link.Get(index)
		return err
	})
	return m, err
}

// hasCarrier reports whether a partner is at the other end.
func hasCarrier(name string) (bool, error) {
	m, err := link(name)
	return m.Flags&unix.IFF_LOWER_UP != 0, err
}

// carrier waits for the other end of an interface, and of a bond by LACP also for its
// partner: without one, the switch drops what all members but one send, or all of it.
// One that says nothing may be a switch that passes packets until it has heard LACP.
func (s seek) carrier(ctx context.Context, i spec.Interface) error {
	if err := until(ctx, func() (bool, error) { return hasCarrier(i.Name) }); err != nil {
		return err
	}
	bond := i
	if i.VLAN != nil {
		bond = table.Named(s.Table.Interfaces, i.VLAN.On)
	}
	if bond.Bond == nil || bond.Bond.Mode != spec.Bond8023AD {
		return nil
	}
	s.waits(errors.New("no partner by LACP"))
	limit, cancel := context.WithTimeout(ctx, s.lacp)
	defer cancel()
	err := until(limit, func() (bool, error) { return hasPartner(bond.Name) })
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		s.say("bond %s: no partner by LACP in %s, going on without", bond.Name, s.lacp)
		return nil
	}
	return err
}

// hasPartner reports whether a switch has answered by LACP.
func hasPartner(name string) (bool, error) {
	m, err := link(name)
	if err != nil {
		return false, err
	}
	var bond *driver.Bond
	if m.Attributes != nil && m.Attributes.Info != nil {
		bond, _ = m.Attributes.Info.Data.(*driver.Bond)
	}
	if bond == nil {
		return false, fmt.Errorf("interface %s is not a bond", name)
	}
	return bond.AdInfo != nil && slices.ContainsFunc(bond.AdInfo.PartnerMac, func(b byte) bool { return b != 0 }), nil
}

// Dial returns a function that connects by one way and no other, and asks the resolvers of
// that way for names, one without a dot in its domains first: what another network says of
// them is another's.
func Dial(l *record.Lease, silence time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	bind := func(_, _ string, c syscall.RawConn) error {
		var bound error
		err := c.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), l.Interface) })
		return errors.Join(err, bound)
	}
	var turn atomic.Uint32
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if len(l.DNS) == 0 {
			return nil, errors.New("no resolver is known on interface " + l.Interface)
		}
		server := l.DNS[int(turn.Add(1)-1)%len(l.DNS)]
		d := net.Dialer{Timeout: silence, Control: bind}
		return d.DialContext(ctx, network, netip.AddrPortFrom(server, 53).String())
	}}
	d := net.Dialer{Timeout: silence, Control: bind, Resolver: resolver}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, port, err := net.SplitHostPort(address); err == nil && !strings.ContainsAny(host, ".:") {
			for _, domain := range l.Search {
				conn, err := d.DialContext(ctx, network, net.JoinHostPort(host+"."+domain+".", port))
				if no := new(net.DNSError); !errors.As(err, &no) || no.IsTimeout {
					return conn, err
				}
			}
		}
		return d.DialContext(ctx, network, address)
	}
}

// Rename gives interfaces other names, and takes away those whose new name is "". The way
// over them is returned as it is then. The kernel wants an interface down for that and
// forgets its routes, so what it had is given to it again.
func (n *Network) Rename(l *record.Lease, names map[string]string) (*record.Lease, error) {
	if len(names) == 0 {
		return l, nil
	}
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return l, err
	}
	defer conn.Close() // each request has had its answer
	own := n.Under(l).Interfaces
	for _, i := range own {
		name, other := names[i.Name]
		card, err := net.InterfaceByName(i.Name)
		switch {
		case err != nil || !other:
		case name == "":
			err = conn.Link.Delete(uint32(card.Index))
		default:
			err = conn.Link.Set(&rtnetlink.LinkMessage{Index: uint32(card.Index), Change: unix.IFF_UP})
			if err == nil {
				err = conn.Link.Set(&rtnetlink.LinkMessage{Index: uint32(card.Index), Attributes: &rtnetlink.LinkAttributes{Name: name}})
			}
		}
		if err != nil {
			return l, fmt.Errorf("interface %s becomes %q: %w", i.Name, name, err)
		}
	}
	moved := *l
	moved.Interface = after(names, l.Interface)
	for at := range n.Table.Interfaces {
		i := &n.Table.Interfaces[at]
		if i.VLAN != nil {
			i.VLAN = &spec.VLAN{ID: i.VLAN.ID, On: after(names, i.VLAN.On)}
		}
		i.Name = after(names, i.Name)
	}
	if names[l.Interface] == "" && moved.Interface == "" {
		return l, nil // the new root makes another way
	}
	return &moved, n.again(conn, &moved)
}

// after returns the name of an interface after the renaming.
func after(names map[string]string, name string) string {
	if other, is := names[name]; is {
		return other
	}
	return name
}

// again brings what is below a way up and gives it what it had.
func (n *Network) again(conn *rtnetlink.Conn, l *record.Lease) error {
	for _, i := range n.Under(l).Interfaces {
		if err := errors.Join(setUp(conn, i), give(i), giveRoutes(i)); err != nil {
			return fmt.Errorf("interface %s: %w", i.Name, err)
		}
	}
	if l.Static {
		return nil
	}
	return configure(l, unix.RTPROT_DHCP, 1024)
}
