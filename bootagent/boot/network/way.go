// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/jsimonetti/rtnetlink/v2/driver"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

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
	if m.Attributes == nil || m.Attributes.Info == nil {
		return false, fmt.Errorf("interface %s is not a bond", name)
	}
	bond, is := m.Attributes.Info.Data.(*driver.Bond)
	if !is {
		return false, fmt.Errorf("interface %s is not a bond", name)
	}
	if bond.AdInfo == nil {
		return false, nil
	}
	for _, b := range bond.AdInfo.PartnerMac {
		if b != 0 {
			return true, nil
		}
	}
	return false, nil
}

// Dial returns a function that connects by one way and no other, and asks the resolvers of
// that way for names, one without a dot in its domains first: what another network says of
// them is another's.
func Dial(l *state.Lease, silence time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
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
func (n *Network) Rename(l *state.Lease, names map[string]string) (*state.Lease, error) {
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
func (n *Network) again(conn *rtnetlink.Conn, l *state.Lease) error {
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
