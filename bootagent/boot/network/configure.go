// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/network/lease"
	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec"
)

// configure gives an interface its address, and routes that differ from those of other
// interfaces by their metric. A route names the address: so systemd-networkd knows the
// address for one of DHCP when it takes over, see KeepConfiguration=.
func configure(l *record.Lease, by uint8, metric uint32) error {
	return with(l.Interface, func(conn *rtnetlink.Conn, index uint32) error {
		if err := addAddress(conn, index, l.Address); err != nil {
			return fmt.Errorf("address %s on %s: %w", l.Address, l.Interface, err)
		}
		routes := l.Routes
		if l.Gateway.IsValid() && !l.Gateway.IsUnspecified() {
			routes = append(routes[:len(routes):len(routes)], record.LeaseRoute{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: l.Gateway})
		}
		for _, r := range routes {
			of := route{to: r.To, via: r.Via, onLink: r.Via.IsValid() && !l.Address.Contains(r.Via), src: l.Address.Addr(), by: by, metric: metric}
			if err := addRoute(conn, index, of); err != nil {
				return fmt.Errorf("route to %s by %s on %s: %w", r.To, r.Via, l.Interface, err)
			}
		}
		return nil
	})
}

// with opens the kernel for what is done to an interface.
func with(name string, do func(conn *rtnetlink.Conn, index uint32) error) error {
	card, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return err
	}
	defer conn.Close() // each request has had its answer
	return do(conn, uint32(card.Index))
}

func addAddress(conn *rtnetlink.Conn, index uint32, p netip.Prefix) error {
	return fault.But(conn.Address.New(address(index, p)), unix.EEXIST)
}

func address(index uint32, p netip.Prefix) *rtnetlink.AddressMessage {
	m := &rtnetlink.AddressMessage{Family: unix.AF_INET6, PrefixLength: uint8(p.Bits()), Scope: unix.RT_SCOPE_UNIVERSE, Index: index,
		Attributes: &rtnetlink.AddressAttributes{Address: p.Addr().AsSlice(), Local: p.Addr().AsSlice()}}
	if p.Addr().Is4() {
		m.Family, m.Attributes.Broadcast = unix.AF_INET, broadcast(p)
	}
	return m
}

// route is one of an interface. The zero value of to is the default route.
type route struct {
	to     netip.Prefix
	via    netip.Addr // invalid: on the link
	onLink bool       // via is there although no address has it in its network
	src    netip.Addr // invalid: the kernel's choice
	by     uint8      // RTPROT_…
	metric uint32
}

func addRoute(conn *rtnetlink.Conn, index uint32, r route) error {
	m := &rtnetlink.RouteMessage{Family: unix.AF_INET, Table: unix.RT_TABLE_MAIN, Protocol: r.by,
		Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_UNICAST,
		Attributes: rtnetlink.RouteAttributes{OutIface: index, Priority: r.metric}}
	if !r.via.Is4() && r.via.IsValid() || r.to.Addr().Is6() {
		m.Family = unix.AF_INET6
	}
	if r.via.IsValid() {
		m.Attributes.Gateway = r.via.AsSlice()
		if r.onLink {
			m.Flags |= unix.RTNH_F_ONLINK
		}
	} else if m.Family == unix.AF_INET {
		m.Scope = unix.RT_SCOPE_LINK
	}
	if r.to.IsValid() && r.to.Bits() > 0 {
		m.Attributes.Dst, m.DstLength = r.to.Masked().Addr().AsSlice(), uint8(r.to.Bits())
	}
	if r.src.IsValid() {
		m.Attributes.Src = r.src.AsSlice()
	}
	if !r.via.IsValid() || m.Family == unix.AF_INET {
		return conn.Route.Replace(m)
	}
	// Among those by IPv6 of one metric the kernel would add it as one more hop.
	return fault.But(conn.Route.Add(m), unix.EEXIST)
}

// drop takes the address of a way from its interface, and with it the routes that name it.
func drop(l *record.Lease) error {
	return with(l.Interface, func(conn *rtnetlink.Conn, index uint32) error {
		err := conn.Address.Delete(address(index, l.Address))
		return fault.In(fault.But(err, unix.EADDRNOTAVAIL), "take %s from %s", l.Address, l.Interface)
	})
}

func broadcast(p netip.Prefix) net.IP {
	addr := p.Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		addr[bit/8] |= 1 << (7 - bit%8)
	}
	return addr[:]
}

// advertised makes a way of an interface as a router says there: by an address that the
// kernel makes of the router's prefix, or by one of DHCPv6. The default route is the
// kernel's in both cases.
func (s seek) advertised(ctx context.Context, i spec.Interface, hear *lease.Advertised) error {
	if err := s.carrier(ctx, i); err != nil {
		return err
	}
	s.waits(errors.New("no router advertisement"))
	card, err := net.InterfaceByName(i.Name)
	if err != nil {
		return err
	}
	var flags uint32
	if err := until(ctx, func() (bool, error) {
		flags, err = lease.RouterFlags(card.Index)
		return flags&lease.FlagReceived != 0, err
	}); err != nil {
		return err
	}
	l := &record.Lease{Interface: i.Name, MAC: table.MAC(i, s.Table.Interfaces), DNS: s.dns(), Search: slices.Clone(s.Table.Search)}
	if flags&lease.FlagManaged != 0 {
		s.waits(errors.New("no answer to DHCPv6"))
		return s.leased(ctx, *card, l, hear)
	}
	s.waits(errors.New("the router advertises no prefix for addresses"))
	if err := until(ctx, func() (bool, error) {
		l.Address, err = global(i.Name)
		return l.Address.IsValid(), err
	}); err != nil {
		return err
	}
	if flags&lease.FlagOther != 0 {
		if found, err := lease.Resolvers6(ctx, *card, s.within); err == nil {
			l.DNS, l.Search = append(l.DNS, found.DNS...), append(l.Search, found.Search...)
		} else {
			s.say("interface %s: DHCPv6 says nothing of resolvers: %v", i.Name, err)
		}
	}
	heard(l, hear, card.Index)
	s.found(l)
	return nil
}

// heard adds what routers said of names on an interface.
func heard(l *record.Lease, hear *lease.Advertised, index int) {
	dns, search := hear.Of(index)
	l.DNS = append(l.DNS, dns...)
	known := func(name string) bool { return slices.Contains(l.Search, name) }
	l.Search = append(l.Search, slices.DeleteFunc(lease.PlainNames(search), known)...)
}

// leased is advertised by DHCPv6, asked until it answers, and again after half of the time
// for which the address is preferred.
func (s seek) leased(ctx context.Context, card net.Interface, l *record.Lease, hear *lease.Advertised) error {
	for {
		p, half, found, err := lease.Address6(ctx, card, s.within)
		if err == nil {
			got := *l
			got.Address, got.DNS, got.Search = p, slices.Concat(l.DNS, found.DNS), slices.Concat(l.Search, found.Search)
			heard(&got, hear, card.Index)
			if err := configure(&got, unix.RTPROT_DHCP, 0); err != nil {
				return err
			}
			if err := settled(ctx, card.Name, func(a netip.Prefix) bool { return a == p }); err != nil {
				return err
			}
			s.found(&got)
		}
		if err != nil {
			half = s.within / 4
		}
		if stall.Rest(ctx, half) != nil {
			return err
		}
	}
}

// global is an address of an interface that the kernel made of an advertisement; invalid
// as long as there is none that can be used.
func global(name string) (netip.Prefix, error) {
	all, err := addressesOf(name)
	for _, a := range all {
		if a.prefix.Addr().Is6() && a.prefix.Addr().IsGlobalUnicast() &&
			a.flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED|unix.IFA_F_PERMANENT) == 0 {
			return a.prefix, nil
		}
	}
	return netip.Prefix{}, err
}

// given makes a way of an interface whose addresses are in the table.
func (s seek) given(ctx context.Context, i spec.Interface) error {
	if err := s.carrier(ctx, i); err != nil {
		return err
	}
	l := &record.Lease{Interface: i.Name, MAC: table.MAC(i, s.Table.Interfaces), Static: true, DNS: s.dns(), Search: s.Table.Search}
	var err error
	if l.Address, err = netip.ParsePrefix(i.Addresses[0]); err != nil {
		return err
	}
	l.Gateway, _ = netip.ParseAddr(i.Gateway) // or none
	if err := give(i); err != nil {
		return err
	}
	if err := settled(ctx, i.Name, func(a netip.Prefix) bool { return slices.Contains(i.Addresses, a.String()) }); err != nil {
		return err
	}
	if err := giveRoutes(i); err != nil {
		return err
	}
	s.found(l)
	return nil
}

// give gives an interface the addresses that the table has.
func give(i spec.Interface) error {
	return with(i.Name, func(conn *rtnetlink.Conn, index uint32) error {
		for _, text := range i.Addresses {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return err
			}
			if err := addAddress(conn, index, p); err != nil {
				return fmt.Errorf("address %s: %w", p, err)
			}
		}
		return nil
	})
}

// giveRoutes gives it the routes, that of the gateway among them.
func giveRoutes(i spec.Interface) error {
	return with(i.Name, func(conn *rtnetlink.Conn, index uint32) error {
		for _, r := range append(slices.Clone(i.Routes), spec.Route{Via: i.Gateway}) {
			if r == (spec.Route{}) {
				continue
			}
			of := route{by: unix.RTPROT_STATIC, onLink: i.OnLink(r.Via), metric: uint32(r.Metric)}
			of.to, _ = netip.ParsePrefix(r.To) // that of the gateway has none
			of.via, _ = netip.ParseAddr(r.Via) // on the link
			if err := addRoute(conn, index, of); err != nil {
				return fmt.Errorf("route to %s by %s: %w", r.To, r.Via, err)
			}
		}
		return nil
	})
}

// dns are the resolvers of the table.
func (n *Network) dns() (out []netip.Addr) {
	for _, text := range n.Table.DNS {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// settleTime is how long the kernel may take to see whether another machine has an address
// of IPv6; it takes two seconds.
const settleTime = 10 * time.Second

// settled waits until the addresses of an interface that are meant can be used, as the
// kernel sees whether another machine has one of IPv6.
func settled(ctx context.Context, name string, meant func(netip.Prefix) bool) error {
	limit, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	err := until(limit, func() (bool, error) {
		all, err := addressesOf(name)
		if err != nil {
			return false, err
		}
		for _, a := range all {
			switch {
			case !meant(a.prefix):
			case a.flags&unix.IFA_F_DADFAILED != 0:
				return false, fmt.Errorf("another machine has address %s", a.prefix)
			case a.flags&unix.IFA_F_TENTATIVE != 0:
				return false, nil
			}
		}
		return true, nil
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("its addresses are not settled after %s", settleTime)
	}
	return err
}

// ofInterface is an address of an interface.
type ofInterface struct {
	prefix netip.Prefix
	flags  uint32 // IFA_F_…
}

// addressesOf lists those of an interface.
func addressesOf(name string) (out []ofInterface, err error) {
	err = with(name, func(conn *rtnetlink.Conn, index uint32) error {
		all, err := conn.Address.List()
		if err != nil {
			return err
		}
		for _, m := range all {
			if m.Index != index || m.Attributes == nil {
				continue
			}
			if a, ok := netip.AddrFromSlice(m.Attributes.Address); ok {
				out = append(out, ofInterface{netip.PrefixFrom(a.Unmap(), int(m.PrefixLength)), m.Attributes.Flags | uint32(m.Flags)})
			}
		}
		return nil
	})
	return out, err
}

// lease makes a way of an interface by DHCPv4, and asks again after half of the lease, with
// the same identifier: a loader that waits for its registry keeps its address. had holds what
// the interface had before, nil for nothing.
func (s seek) lease(ctx context.Context, i spec.Interface, had **record.Lease) error {
	if err := s.carrier(ctx, i); err != nil {
		return err
	}
	s.waits(errors.New("no answer to DHCP"))
	metric := 1024 + uint32(slices.IndexFunc(s.Table.Interfaces, func(o spec.Interface) bool { return o.Name == i.Name }))
	for {
		card, err := net.InterfaceByName(i.Name)
		if err != nil {
			return err
		}
		l, half, err := lease.Ask(ctx, *card, s.within)
		if err != nil {
			return err
		}
		l.MAC, l.DNS, l.Search = table.MAC(i, s.Table.Interfaces), append(s.dns(), l.DNS...), append(slices.Clone(s.Table.Search), l.Search...)
		if i.MTU == 0 {
			err := with(i.Name, func(conn *rtnetlink.Conn, index uint32) error { return setMTU(conn, index, l.MTU) })
			if err != nil { // a way all the same
				s.say("interface %s: DHCP: %v", i.Name, err)
			}
		}
		if *had != nil && (*had).Address != l.Address {
			s.say("interface %s: DHCP gave %s in place of %s", i.Name, l.Address, (*had).Address)
			fault.Say(s.say, drop(*had))
		}
		if err := configure(l, unix.RTPROT_DHCP, metric); err != nil {
			return err
		}
		s.found(l)
		*had = l
		if stall.Rest(ctx, half) != nil {
			return nil
		}
	}
}
