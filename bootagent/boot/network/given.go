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

// given makes a way of an interface whose addresses are in the table.
func (s seek) given(ctx context.Context, i spec.Interface) error {
	if err := s.carrier(ctx, i); err != nil {
		return err
	}
	l := &state.Lease{Interface: i.Name, MAC: s.mac(i), Static: true, DNS: s.dns(), Search: s.Table.Search}
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

// mac is the address of the card that an interface has its own from.
func (n *Network) mac(i spec.Interface) string {
	switch {
	case i.Bond != nil:
		return i.Bond.Members[0]
	case i.VLAN != nil:
		for _, on := range n.Table.Interfaces {
			if on.Name == i.VLAN.On {
				return n.mac(on)
			}
		}
	}
	return i.MAC
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
func (s seek) lease(ctx context.Context, i spec.Interface, had **state.Lease) error {
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
		l.MAC, l.DNS, l.Search = s.mac(i), append(s.dns(), l.DNS...), append(slices.Clone(s.Table.Search), l.Search...)
		if i.MTU == 0 {
			err := with(i.Name, func(conn *rtnetlink.Conn, index uint32) error { return setMTU(conn, index, l.MTU) })
			if err != nil { // a way all the same
				s.say("interface %s: DHCP: %v", i.Name, err)
			}
		}
		if *had != nil && (*had).Address != l.Address {
			s.say("interface %s: DHCP gave %s in place of %s", i.Name, l.Address, (*had).Address)
			if err := drop(*had); err != nil {
				s.say("%v", err)
			}
		}
		if err := configure(l, unix.RTPROT_DHCP, metric); err != nil {
			return err
		}
		s.found(l)
		*had = l
		select {
		case <-time.After(half):
		case <-ctx.Done():
			return nil
		}
	}
}
