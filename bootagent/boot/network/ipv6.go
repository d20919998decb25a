// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/network/dhcp"
	"github.com/caisson-os/caisson/bootagent/boot/network/router"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

// advertised makes a way of an interface as a router says there: by an address that the
// kernel makes of the router's prefix, or by one of DHCPv6. The default route is the
// kernel's in both cases.
func (s seek) advertised(ctx context.Context, i spec.Interface, hear *router.Servers) error {
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
		flags, err = router.Said(card.Index)
		return flags&router.Received != 0, err
	}); err != nil {
		return err
	}
	l := &state.Lease{Interface: i.Name, MAC: s.mac(i), DNS: s.dns(), Search: slices.Clone(s.Table.Search)}
	if flags&router.Managed != 0 {
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
	if flags&router.Other != 0 {
		if found, err := dhcp.Resolvers6(ctx, *card, s.within); err == nil {
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
func heard(l *state.Lease, hear *router.Servers, index int) {
	dns, search := hear.Of(index)
	l.DNS = append(l.DNS, dns...)
	known := func(name string) bool { return slices.Contains(l.Search, name) }
	l.Search = append(l.Search, slices.DeleteFunc(dhcp.PlainNames(search), known)...)
}

// leased is advertised by DHCPv6, asked until it answers, and again after half of the time
// for which the address is preferred.
func (s seek) leased(ctx context.Context, card net.Interface, l *state.Lease, hear *router.Servers) error {
	for {
		p, half, found, err := dhcp.Address6(ctx, card, s.within)
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
		if a.prefix.Addr().Is6() && a.prefix.Addr().IsGlobalUnicast() && a.flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED|unix.IFA_F_PERMANENT) == 0 {
			return a.prefix, nil
		}
	}
	return netip.Prefix{}, err
}
