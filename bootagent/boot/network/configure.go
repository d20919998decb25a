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
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

// configure gives an interface its address, and routes that differ from those of other
// interfaces by their metric. A route names the address: so systemd-networkd knows the
// address for one of DHCP when it takes over, see KeepConfiguration=.
func configure(l *state.Lease, by uint8, metric uint32) error {
	return with(l.Interface, func(conn *rtnetlink.Conn, index uint32) error {
		if err := addAddress(conn, index, l.Address); err != nil {
			return fmt.Errorf("address %s on %s: %w", l.Address, l.Interface, err)
		}
		routes := l.Routes
		if l.Gateway.IsValid() && !l.Gateway.IsUnspecified() {
			routes = append(routes[:len(routes):len(routes)], state.LeaseRoute{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: l.Gateway})
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
	err := conn.Address.New(address(index, p))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
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
	if err := conn.Route.Add(m); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// drop takes the address of a way from its interface, and with it the routes that name it.
func drop(l *state.Lease) error {
	return with(l.Interface, func(conn *rtnetlink.Conn, index uint32) error {
		err := conn.Address.Delete(address(index, l.Address))
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("take %s from %s: %w", l.Address, l.Interface, err)
		}
		return nil
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
	l := &state.Lease{Interface: i.Name, MAC: s.mac(i), DNS: s.dns(), Search: slices.Clone(s.Table.Search)}
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
func heard(l *state.Lease, hear *lease.Advertised, index int) {
	dns, search := hear.Of(index)
	l.DNS = append(l.DNS, dns...)
	known := func(name string) bool { return slices.Contains(l.Search, name) }
	l.Search = append(l.Search, slices.DeleteFunc(lease.PlainNames(search), known)...)
}

// leased is advertised by DHCPv6, asked until it answers, and again after half of the time
// for which the address is preferred.
func (s seek) leased(ctx context.Context, card net.Interface, l *state.Lease, hear *lease.Advertised) error {
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
		select {
		case <-ctx.Done():
			return err
		case <-time.After(half):
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
