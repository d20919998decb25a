// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/network/dhcp"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

// lease makes a way of an interface by DHCPv4, and asks again after half of the lease, with
// the same identifier: a loader that waits for its registry keeps its address. had is what
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
		l, half, err := dhcp.Ask(ctx, *card, s.within)
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
