// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"
)

func linkUp(index int) error {
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return err
	}
	defer conn.Close() // each request has had its answer
	return conn.Link.Set(&rtnetlink.LinkMessage{
		Family: unix.AF_UNSPEC,
		Index:  uint32(index),
		Flags:  unix.IFF_UP,
		Change: unix.IFF_UP,
	})
}

// configure gives the interface its address and the default route.
func configure(l *state.Lease) error {
	card, err := net.InterfaceByName(l.Interface)
	if err != nil {
		return err
	}
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return err
	}
	defer conn.Close() // each request has had its answer
	err = conn.Address.New(&rtnetlink.AddressMessage{
		Family:       unix.AF_INET,
		PrefixLength: uint8(l.Address.Bits()),
		Scope:        unix.RT_SCOPE_UNIVERSE,
		Index:        uint32(card.Index),
		Attributes: &rtnetlink.AddressAttributes{
			Address:   l.Address.Addr().AsSlice(),
			Local:     l.Address.Addr().AsSlice(),
			Broadcast: broadcast(l.Address),
		},
	})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("address %s on %s: %w", l.Address, l.Interface, err)
	}
	if !l.Gateway.IsValid() || l.Gateway.IsUnspecified() {
		return nil
	}
	err = conn.Route.Replace(&rtnetlink.RouteMessage{
		Family:   unix.AF_INET,
		Table:    unix.RT_TABLE_MAIN,
		Protocol: unix.RTPROT_DHCP,
		Scope:    unix.RT_SCOPE_UNIVERSE,
		Type:     unix.RTN_UNICAST,
		Attributes: rtnetlink.RouteAttributes{
			Gateway:  l.Gateway.AsSlice(),
			OutIface: uint32(card.Index),
		},
	})
	if err != nil {
		return fmt.Errorf("default route by %s on %s: %w", l.Gateway, l.Interface, err)
	}
	return nil
}

func broadcast(p netip.Prefix) net.IP {
	addr := p.Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		addr[bit/8] |= 1 << (7 - bit%8)
	}
	return addr[:]
}
